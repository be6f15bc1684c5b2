"""Protobuf metadata: what is written comes back, and what is unknown survives."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from tests.support.metadata import KEY, MANIFEST, NAME, SUBTASK
from tests.support.strategies import MANIFESTS, SUBTASKS
from tests.support.unknown_fields import extended, unknown_field

from lakestate.codec import decode_manifest, decode_subtask, encode_manifest, encode_subtask
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange
from lakestate.protocol.metadata import Manifest, SubtaskMetadata, TableFiles
from lakestate.protocol.table_types import KEYED
from lakestate.v1 import checkpoint_pb2, files_pb2, tables_pb2


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
