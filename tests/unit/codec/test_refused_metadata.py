"""Metadata of other formats, jobs and types, and damaged metadata: read, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.metadata import MANIFEST, NAME, SUBTASK

from lakestate.codec import (
    decode_manifest,
    decode_subtask,
    encode_manifest,
    encode_subtask,
    require_table_type,
)
from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.protocol.metadata import FormatVersion
from lakestate.protocol.table_types import GLOBAL_KEYED, KEYED, TIME_KEY, TableType
from lakestate.v1 import checkpoint_pb2, files_pb2, tables_pb2


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
