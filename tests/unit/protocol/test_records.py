"""JSON records come back as they were written, or not at all."""

from __future__ import annotations

import dataclasses
import json
import zlib

import pytest

from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.protocol.records import (
    BoundaryRecord,
    CommittedRecord,
    EpochRecord,
    GenerationRecord,
    Record,
    TagRecord,
)
from lakestate.protocol.sealed_json import RECORD_BYTES_MAX
from lakestate.protocol.values import Epoch, Generation, ObjectRef

MANIFEST = ObjectRef("checkpoints/7/manifest.pb", 1234, 0xFEDCBA9876543210)
RECORDS: tuple[Record, ...] = (
    GenerationRecord("job", Generation(3), "a1b2", 1_700_000_000_000),
    EpochRecord("job", Epoch(7), Generation(3), MANIFEST, 1_700_000_000_000),
    CommittedRecord("job", Epoch(7), Generation(3), MANIFEST),
    TagRecord("job", "release", Epoch(7), MANIFEST, 1_700_000_000_000),
    BoundaryRecord("job", Epoch(4), Generation(3), "c3d4"),
)
EACH = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)


def decoded(record: Record, data: bytes, job_id: str = "job") -> Record:
    return type(record).decode(data, "store/job/object.json", job_id)


def sealed(body: dict[str, object]) -> bytes:
    """A record with a right checksum, whatever it says."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{text[:-1]},"crc32":"{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def body_of(record: Record) -> dict[str, object]:
    body: dict[str, object] = json.loads(record.encode())
    del body["crc32"]
    return body


@EACH
def test_a_record_comes_back_as_it_was_written(record: Record) -> None:
    assert decoded(record, record.encode()) == record


def test_a_fence_without_the_identity_of_its_state_is_as_it_was_before_there_was_one() -> None:
    fence = GenerationRecord("job", Generation(3), "a1b2", 1_700_000_000_000, "4f1c")
    assert decoded(fence, fence.encode()) == fence
    assert b"state_id" not in dataclasses.replace(fence, state_id="").encode()
    with pytest.raises(CorruptionError, match="malformed generation"):
        decoded(fence, sealed(body_of(fence) | {"state_id": 5}))


@EACH
def test_a_record_is_one_line_of_json_that_says_what_it_is(record: Record) -> None:
    text = record.encode().decode("ascii")
    assert text.count("\n") == 1
    assert list(json.loads(text))[:3] == ["record", "format", "job_id"]
    assert json.loads(text)["record"] == record.kind


@EACH
def test_every_flipped_bit_is_found_and_the_object_named(record: Record) -> None:
    data = record.encode()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError, match=r"store/job/object\.json"):
            decoded(record, bytes(flipped))


@EACH
def test_every_truncation_and_every_addition_is_found(record: Record) -> None:
    data = record.encode()
    for damaged in [*(data[:length] for length in range(len(data))), data + b"\n", b" " + data, data + data]:
        with pytest.raises(CorruptionError, match=r"store/job/object\.json"):
            decoded(record, damaged)


@EACH
@pytest.mark.parametrize("data", [b"null", b"[]", b"3", b'"text"', b"{}", b"\xff\xfe", b"[" * 50_000])
def test_what_is_not_a_record_at_all_is_named(record: Record, data: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"store/job/object\.json"):
        decoded(record, data)


@EACH
def test_a_record_without_its_checksum_is_corruption(record: Record) -> None:
    for body in (body_of(record), body_of(record) | {"crc32": 7}):
        with pytest.raises(CorruptionError, match=r"carries no checksum: store/job/object\.json"):
            decoded(record, json.dumps(body, separators=(",", ":")).encode() + b"\n")


@EACH
def test_a_record_of_another_kind_in_its_place_is_found(record: Record) -> None:
    for other in RECORDS:
        if other.kind != record.kind:
            with pytest.raises(CorruptionError, match=f"not the {record.kind} of this job"):
                decoded(record, other.encode())


@EACH
def test_a_record_of_another_job_in_its_place_is_found(record: Record) -> None:
    foreign = dataclasses.replace(record, job_id="other")
    with pytest.raises(CorruptionError, match=r"found \w+ of job other; expected \w+ of job job"):
        decoded(record, foreign.encode())


@EACH
def test_a_newer_format_is_refused_as_such(record: Record) -> None:
    with pytest.raises(IncompatibleStateError, match="found format 2; expected format 1"):
        decoded(record, sealed(body_of(record) | {"format": 2}))


@EACH
def test_a_field_more_from_a_newer_writer_is_ignored(record: Record) -> None:
    assert decoded(record, sealed(body_of(record) | {"colour": "green"})) == record


@EACH
def test_a_field_of_another_type_is_malformed(record: Record) -> None:
    for name in body_of(record).keys() - {"record", "format", "job_id"}:
        for value in (None, 1.5, [], {}, "", -1, True):
            if name.endswith("_ms") and value == -1:
                continue
            if name.endswith("_id") and value == "":
                continue
            with pytest.raises(CorruptionError, match=f"malformed {record.kind}"):
                decoded(record, sealed(body_of(record) | {name: value}))


@EACH
def test_a_missing_field_is_malformed(record: Record) -> None:
    for name in body_of(record).keys() - {"record", "format", "job_id"}:
        body = body_of(record)
        del body[name]
        with pytest.raises(CorruptionError, match=f"malformed {record.kind}"):
            decoded(record, sealed(body))


def test_a_manifest_outside_the_job_is_refused() -> None:
    record = RECORDS[1]
    body = body_of(record) | {"manifest": {"path": "../x", "size_bytes": 1, "checksum": "0"}}
    with pytest.raises(CorruptionError, match=r"leaves the job's root.*\.\./x"):
        decoded(record, sealed(body))


def test_a_record_of_unbounded_size_is_not_even_parsed() -> None:
    with pytest.raises(CorruptionError, match="record is too large"):
        decoded(RECORDS[0], b" " * (RECORD_BYTES_MAX + 1))
