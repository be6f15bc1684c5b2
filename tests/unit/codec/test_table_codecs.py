"""Codecs of table types: each type writes and reads its own, and types from outside too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.metadata import FILE, KEY, NAME, SUBTASK, VALUE
from tests.support.unknown_fields import TYPED, extended

from lakestate.codec import GenericTableCodec, decode_subtask, encode_subtask, register_codec
from lakestate.codec import tables as codec_tables
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.table_types import GLOBAL_KEYED, TableType
from lakestate.v1 import checkpoint_pb2, tables_pb2


def test_a_global_table_of_several_columns_is_refused_before_anything_is_written() -> None:
    config = TableConfig("names", GLOBAL_KEYED, key_columns=(KEY, VALUE))
    with pytest.raises(InvalidInputError, match="names; found 2 columns"):
        encode_subtask(replace(SUBTASK, configs=(config,)))


OUTSIDE = TableType("outside")


OUTSIDE_CONFIG = TableConfig(
    "sketch",
    OUTSIDE,
    state_version=2,
    key_columns=(KEY,),
    value_columns=(VALUE,),
    routing_columns=("user",),
    time_column="ts",
    options=b"\x00opaque",
)


OUTSIDE_SUBTASK = replace(
    SUBTASK,
    configs=(OUTSIDE_CONFIG,),
    tables=(TableFiles("sketch", OUTSIDE, (FILE,), expired_before_us=4, commit_data=b"c"),),
)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_tables, "_REGISTERED", dict(codec_tables._REGISTERED))
    register_codec(OUTSIDE, GenericTableCodec())


@pytest.mark.usefixtures("outside")
def test_a_type_from_outside_comes_back_as_it_was_written() -> None:
    data = encode_subtask(OUTSIDE_SUBTASK)
    assert decode_subtask(data, NAME, "job") == OUTSIDE_SUBTASK
    assert encode_subtask(decode_subtask(data, NAME, "job")) == data


@pytest.mark.usefixtures("outside")
def test_unknown_fields_of_a_type_from_outside_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPED["TableConfig"][1], OUTSIDE.name, tables_pb2.GenericTableConfig)
    monkeypatch.setitem(TYPED["TableCheckpointMetadata"][1], OUTSIDE.name, tables_pb2.GenericTableCheckpoint)
    data, kinds = extended(checkpoint_pb2.SubtaskCheckpointMetadata(), encode_subtask(OUTSIDE_SUBTASK))
    assert {"GenericTableConfig", "GenericTableCheckpoint"} <= kinds
    assert encode_subtask(decode_subtask(data, NAME, "job")) == data


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("setting", ["ttl_us", "retention_us", "uses_two_phase_commit"])
def test_the_generic_codec_refuses_what_it_would_lose(setting: str) -> None:
    config = replace(OUTSIDE_CONFIG, **{setting: 5})
    with pytest.raises(InvalidInputError, match=f"table sketch; found {setting}"):
        encode_subtask(replace(OUTSIDE_SUBTASK, configs=(config,)))


def test_a_type_that_is_not_registered_is_refused_before_anything_is_written() -> None:
    with pytest.raises(IncompatibleStateError, match="unknown table type: table sketch; found outside"):
        encode_subtask(OUTSIDE_SUBTASK)
