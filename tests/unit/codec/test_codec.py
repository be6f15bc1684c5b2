"""Protobuf metadata: what is written comes back, what is unknown survives, what is wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from google.protobuf.message import Message
from hypothesis import given
from tests.support.strategies import MANIFESTS, SUBTASKS

from lakestate.codec import (
    GenericTableCodec,
    decode_manifest,
    decode_subtask,
    encode_manifest,
    encode_subtask,
    register_codec,
    require_table_type,
)
from lakestate.codec import tables as codec_tables
from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange
from lakestate.protocol.metadata import (
    Column,
    FormatVersion,
    Manifest,
    NamedBytes,
    OperatorEntry,
    SinkPreCommit,
    SourceOffsets,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableConfig,
    TableFiles,
)
from lakestate.protocol.table_types import GLOBAL_KEYED, KEYED, TIME_KEY, TableType
from lakestate.protocol.values import Block, Epoch, FileRef, Generation, ObjectRef, TimeRange
from lakestate.v1 import checkpoint_pb2, files_pb2, tables_pb2

NAME = "store/job/object"
REF = ObjectRef("checkpoints/7/operator-op-0.metadata", 12, 34)
FILE = FileRef(
    path="checkpoints/7/operator-op/users-0-a1.parquet",
    size_bytes=100,
    checksum=5,
    row_count=9,
    epoch=Epoch(7),
    generation=Generation(2),
    subtask_index=0,
    state_version=1,
    schema_fingerprint=6,
    keys=KeyRange(1, 99),
    times=TimeRange(-5, 5),
    valid_keys=KeyRange(0, 50),
    blocks=(Block(0, 50, 4, KeyRange(1, 40), 8), Block(50, 50, 5, KeyRange(41, 99), 9)),
)
KEY, VALUE = Column("user", "string", nullable=False), Column("n", "bigint")
MANIFEST = Manifest(
    job_id="job",
    epoch=Epoch(7),
    generation=Generation(2),
    parent=Epoch(6),
    started_ms=1,
    finished_ms=2,
    min_epoch=Epoch(3),
    operators=(
        OperatorEntry(
            "op", 2, tuple(SubtaskEntry(n, ALL_KEYS, REF, StateSummary(1, 2, 3, 4)) for n in (0, 1))
        ),
    ),
    sources=(SourceOffsets("events", "{}", 5),),
    sinks=(SinkPreCommit("out", b"pending"),),
    engine_files=(NamedBytes("offsets/7", b"v1"),),
)
SUBTASK = SubtaskMetadata(
    job_id="job",
    operator_id="op",
    subtask_index=0,
    parallelism=2,
    epoch=Epoch(7),
    generation=Generation(2),
    attempt="a1",
    key_range=KeyRange(0, 2**63 - 1),
    started_ms=1,
    finished_ms=2,
    configs=(
        TableConfig("names", GLOBAL_KEYED, key_columns=(KEY,), value_columns=(VALUE,)),
        TableConfig("users", KEYED, key_columns=(KEY,), value_columns=(VALUE,)),
        TableConfig("events", TIME_KEY, key_columns=(KEY,), value_columns=(VALUE,), time_column="ts"),
    ),
    tables=(
        TableFiles("names", GLOBAL_KEYED, (FILE,), commit_data=b"c"),
        TableFiles("users", KEYED, (FILE, replace(FILE, valid_keys=ALL_KEYS))),
        TableFiles("events", TIME_KEY, (FILE,), expired_before_us=4),
    ),
)
TYPED = {
    "TableConfig": (
        "config",
        {
            GLOBAL_KEYED.name: tables_pb2.GlobalKeyedTableConfig,
            KEYED.name: tables_pb2.KeyedTableConfig,
            TIME_KEY.name: tables_pb2.TimeKeyTableConfig,
        },
    ),
    "TableCheckpointMetadata": (
        "data",
        {
            GLOBAL_KEYED.name: tables_pb2.GlobalKeyedTableCheckpoint,
            KEYED.name: tables_pb2.KeyedTableCheckpoint,
            TIME_KEY.name: tables_pb2.TimeKeyTableCheckpoint,
        },
    ),
}


def unknown_field(number: int) -> bytes:
    """Field 1000 with a text, as a newer version would write it: tag, length, bytes."""
    text = f"unknown {number}".encode()
    return b"\xc2\x3e" + bytes([len(text)]) + text


def with_unknown_everywhere(message: Message, numbers: Iterator[int], kinds: set[str]) -> None:
    """Give every message below, and those packed into bytes, a field of its own that we do not know."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                with_unknown_everywhere(part, numbers, kinds)
    kind = type(message).__name__
    if kind in TYPED:
        name, types = TYPED[kind]
        inner = types[message.table_type]()  # type: ignore[attr-defined]
        inner.ParseFromString(getattr(message, name))
        with_unknown_everywhere(inner, numbers, kinds)
        setattr(message, name, inner.SerializeToString(deterministic=True))
    kinds.add(kind)
    message.MergeFromString(unknown_field(next(numbers)))


def extended(message: Message, data: bytes) -> tuple[bytes, set[str]]:
    message.ParseFromString(data)
    kinds: set[str] = set()
    with_unknown_everywhere(message, iter(range(1000)), kinds)
    return message.SerializeToString(deterministic=True), kinds


@given(MANIFESTS)
def test_a_manifest_comes_back_as_it_was_written(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert decode_manifest(data, NAME, "job") == manifest
    assert encode_manifest(decode_manifest(data, NAME, "job")) == data


@given(SUBTASKS)
def test_subtask_metadata_comes_back_as_it_was_written(metadata: SubtaskMetadata) -> None:
    data = encode_subtask(metadata)
    assert decode_subtask(data, NAME, "job") == metadata
    assert encode_subtask(decode_subtask(data, NAME, "job")) == data


def test_unknown_fields_of_a_manifest_survive_at_every_level() -> None:
    data, kinds = extended(checkpoint_pb2.Manifest(), encode_manifest(MANIFEST))
    assert kinds == {
        "FormatVersion",
        "KeyRange",
        "Manifest",
        "NamedBytes",
        "ObjectRef",
        "OperatorCheckpointMetadata",
        "SinkPreCommit",
        "SourceOffsets",
        "StateSummary",
        "SubtaskEntry",
    }
    assert encode_manifest(decode_manifest(data, NAME, "job")) == data


def test_unknown_fields_of_subtask_metadata_survive_at_every_level() -> None:
    data, kinds = extended(checkpoint_pb2.SubtaskCheckpointMetadata(), encode_subtask(SUBTASK))
    assert kinds == {
        "Block",
        "Column",
        "FileRef",
        "FormatVersion",
        "GlobalKeyedTableCheckpoint",
        "GlobalKeyedTableConfig",
        "KeyRange",
        "KeyedTableCheckpoint",
        "KeyedTableConfig",
        "ObjectRef",
        "SubtaskCheckpointMetadata",
        "TableCheckpointMetadata",
        "TableConfig",
        "TimeKeyTableCheckpoint",
        "TimeKeyTableConfig",
        "TimeRange",
    }
    assert encode_subtask(decode_subtask(data, NAME, "job")) == data


def test_unknown_fields_do_not_hide_the_known_ones() -> None:
    data, _ = extended(checkpoint_pb2.SubtaskCheckpointMetadata(), encode_subtask(SUBTASK))
    known = checkpoint_pb2.SubtaskCheckpointMetadata()
    known.ParseFromString(encode_subtask(decode_subtask(data, NAME, "job")))
    known.DiscardUnknownFields()
    decoded = decode_subtask(known.SerializeToString(), NAME, "job")
    assert [table.table for table in decoded.tables] == ["names", "users", "events"]
    assert [file.valid_keys for file in decoded.tables[1].files] == [KeyRange(0, 50), ALL_KEYS]
    assert [config.key_columns for config in decoded.configs] == [(KEY,)] * 3


def test_a_file_keeps_its_unknown_fields_when_it_is_clipped_and_carried_on() -> None:
    message = files_pb2.FileRef()
    data = encode_subtask(SUBTASK)
    decoded = decode_subtask(extended(checkpoint_pb2.SubtaskCheckpointMetadata(), data)[0], NAME, "job")
    clipped = decoded.tables[1].files[0].clipped_to(KeyRange(10, 20))
    assert clipped is not None
    carried = replace(SUBTASK, tables=(TableFiles("users", KEYED, (clipped,)),))
    stored = checkpoint_pb2.SubtaskCheckpointMetadata()
    stored.ParseFromString(encode_subtask(carried))
    inner = tables_pb2.KeyedTableCheckpoint()
    inner.ParseFromString(stored.tables[0].data)
    message.CopyFrom(inner.files[0])
    assert (message.valid_keys.first, message.valid_keys.last) == (10, 20)
    # Its own, of its object, of three ranges, and of two blocks with a range each.
    assert message.SerializeToString().count(b"unknown ") == 9


def test_an_explicit_range_of_all_keys_with_unknown_fields_is_not_narrowed() -> None:
    file = files_pb2.FileRef(object=files_pb2.ObjectRef(path="checkpoints/1/x"), epoch=1, generation=1)
    file.valid_keys.CopyFrom(files_pb2.KeyRange(first=0, last=2**64 - 1))
    file.valid_keys.MergeFromString(unknown_field(1))
    table = tables_pb2.KeyedTableCheckpoint(files=[file]).SerializeToString()
    stored = checkpoint_pb2.SubtaskCheckpointMetadata()
    stored.ParseFromString(encode_subtask(replace(SUBTASK, tables=())))
    stored.tables.add(table="users", table_type=KEYED.name, data=table)
    data = stored.SerializeToString(deterministic=True)
    decoded = decode_subtask(data, NAME, "job")
    assert decoded.tables[0].files[0].valid_keys == ALL_KEYS
    assert encode_subtask(decoded) == data


@pytest.mark.parametrize("minor", [0, 1, 99])
def test_a_newer_minor_format_is_read_and_kept(minor: int) -> None:
    manifest = replace(MANIFEST, format=FormatVersion(1, minor))
    assert decode_manifest(encode_manifest(manifest), NAME, "job") == manifest


def test_a_newer_major_format_is_refused_and_says_what_to_do() -> None:
    newer = FormatVersion(2, 5)
    for refused in (
        lambda: decode_manifest(encode_manifest(replace(MANIFEST, format=newer)), NAME, "job"),
        lambda: decode_subtask(encode_subtask(replace(SUBTASK, format=newer)), NAME, "job"),
    ):
        with pytest.raises(IncompatibleStateError) as caught:
            refused()
        assert (caught.value.object_name, caught.value.found, caught.value.action) == (
            NAME,
            "format version 2.5",
            "use a newer version of Lakestate",
        )


def test_a_format_before_the_first_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="impossible format version"):
        decode_manifest(encode_manifest(replace(MANIFEST, format=FormatVersion(0, 0))), NAME, "job")


def test_an_object_of_the_other_kind_is_refused_by_name() -> None:
    with pytest.raises(CorruptionError, match="not a subtask metadata: store/job/object; found manifest"):
        decode_subtask(encode_manifest(MANIFEST), NAME, "job")
    with pytest.raises(CorruptionError, match="not a manifest: store/job/object; found subtask metadata"):
        decode_manifest(encode_subtask(SUBTASK), NAME, "job")


def test_an_object_of_another_job_is_refused_by_name() -> None:
    with pytest.raises(CorruptionError, match="manifest of another job: store/job/object; found 'job'"):
        decode_manifest(encode_manifest(MANIFEST), NAME, "other")


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x0a\xff", b"{}", b"\x00" * 20, encode_manifest(MANIFEST)[:-1]]
)
def test_malformed_bytes_are_named(data: bytes) -> None:
    for decode in (decode_manifest, decode_subtask):
        with pytest.raises(CorruptionError) as caught:
            decode(data, NAME, "job")
        assert caught.value.object_name == NAME


def test_every_truncation_is_refused_or_leaves_out_whole_fields_at_the_end() -> None:
    # Protobuf has no end mark; that nothing is missing is what the checksum in the reference is for.
    data = encode_manifest(MANIFEST)
    for length in range(len(data)):
        try:
            shorter = decode_manifest(data[:length], NAME, "job")
        except CorruptionError:
            continue
        assert data.startswith(encode_manifest(shorter))


def edited(edit: Callable[[checkpoint_pb2.Manifest], object]) -> bytes:
    message = checkpoint_pb2.Manifest()
    message.ParseFromString(encode_manifest(MANIFEST))
    edit(message)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda m: setattr(m.operators[0].subtasks[1].metadata, "path", "../../passwd"), "leaves the job"),
        (lambda m: setattr(m.operators[0].subtasks[0].metadata, "path", "/etc/passwd"), "leaves the job"),
        (lambda m: setattr(m.operators[0].subtasks[0].metadata, "path", ""), "leaves the job"),
        (lambda m: setattr(m.engine_files[0], "name", "../../../home/user/.profile"), "leaves the job"),
        (lambda m: setattr(m.operators[0].subtasks[0].key_range, "last", 0) or
                   setattr(m.operators[0].subtasks[0].key_range, "first", 1), "not a key range"),
        (lambda m: setattr(m, "epoch", 0), "not an epoch"),
        (lambda m: setattr(m, "parent", 0), "not an epoch"),
        (lambda m: setattr(m, "generation", 0), "not a generation"),
        (lambda m: setattr(m, "status", 0), "not a valid CompletionStatus"),
        (lambda m: setattr(m, "status", 77), "not a valid CompletionStatus"),
    ],
)  # fmt: skip
def test_an_impossible_value_in_a_manifest_is_corruption_that_names_the_object(
    edit: Callable[[checkpoint_pb2.Manifest], object], reason: str
) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_manifest(edited(edit), NAME, "job")
    assert caught.value.object_name == NAME
    assert reason in str(caught.value)


def test_a_data_file_outside_the_job_is_corruption_that_names_the_object() -> None:
    file = files_pb2.FileRef(object=files_pb2.ObjectRef(path="a/../../b"), epoch=1, generation=1)
    stored = checkpoint_pb2.SubtaskCheckpointMetadata()
    stored.ParseFromString(encode_subtask(SUBTASK))
    stored.tables[1].data = tables_pb2.KeyedTableCheckpoint(files=[file]).SerializeToString()
    with pytest.raises(CorruptionError, match=r"holds an impossible value: store/job/object;.*a/\.\./\.\./b"):
        decode_subtask(stored.SerializeToString(), NAME, "job")


@pytest.mark.parametrize("part", ["configs", "tables"])
def test_damage_inside_a_table_names_the_object_and_the_table(part: str) -> None:
    stored = checkpoint_pb2.SubtaskCheckpointMetadata()
    stored.ParseFromString(encode_subtask(SUBTASK))
    setattr(getattr(stored, part)[1], {"configs": "config", "tables": "data"}[part], b"\xff\xff")
    with pytest.raises(CorruptionError, match=r"not valid Protobuf: store/job/object \(table users\)"):
        decode_subtask(stored.SerializeToString(), NAME, "job")


@pytest.mark.parametrize("part", ["configs", "tables"])
def test_a_table_type_of_a_newer_version_is_refused(part: str) -> None:
    stored = checkpoint_pb2.SubtaskCheckpointMetadata()
    stored.ParseFromString(encode_subtask(SUBTASK))
    getattr(stored, part)[1].table_type = "bloom"
    with pytest.raises(
        IncompatibleStateError, match=r"unknown table type: store/job/object \(table users\); found bloom"
    ):
        decode_subtask(stored.SerializeToString(), NAME, "job")


@pytest.mark.parametrize("found", [GLOBAL_KEYED, TIME_KEY, TableType("bloom")], ids=str)
def test_metadata_of_one_table_type_is_never_taken_for_another(found: TableType) -> None:
    with pytest.raises(IncompatibleStateError, match=f"{NAME}; found {found}; expected keyed"):
        require_table_type(found, KEYED, NAME)
    require_table_type(KEYED, KEYED, NAME)


@pytest.mark.parametrize("part", ["configs", "tables"])
def test_metadata_from_before_the_first_release_is_refused_by_name(part: str) -> None:
    """It numbered the table types, in the field that now holds the name of one."""
    stored = checkpoint_pb2.SubtaskCheckpointMetadata()
    stored.ParseFromString(encode_subtask(SUBTASK))
    table = getattr(stored, part)[1]
    table.table_type = ""
    table.MergeFromString(b"\x10\x02")
    with pytest.raises(IncompatibleStateError, match=r"store/job/object \(table users\); found no name"):
        decode_subtask(stored.SerializeToString(), NAME, "job")


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
