"""Hostile metadata: manifests, subtask metadata, records and declarations decode or are refused."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.fuzzing.hostile_bytes import (
    FUZZ,
    TEXTS,
    decodes_or_refuses,
    mutated,
    mutated_message,
    mutated_tree,
    nested,
)
from tests.support.metadata import MANIFEST, SUBTASK

from lakestate.codec import decode_manifest, decode_subtask, encode_manifest, encode_subtask
from lakestate.protocol.records import (
    BoundaryRecord,
    CommittedRecord,
    EpochRecord,
    GenerationRecord,
    Record,
    TagRecord,
)
from lakestate.protocol.values import Epoch, Generation, ObjectRef
from lakestate.storage.cache.entry import EntryRecord, Stamp, decode_record
from lakestate.tables.arrow.schema import arrow_type, columns_of
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata

pytestmark = pytest.mark.fuzz

REF = ObjectRef("checkpoints/7/manifest.pb", 100, 2**63)
RECORDS: list[Record] = [
    GenerationRecord("job", Generation(3), "claim", 5, "state"),
    EpochRecord("job", Epoch(7), Generation(3), REF, 5),
    CommittedRecord("job", Epoch(7), Generation(3), REF),
    TagRecord("job", "release", Epoch(7), REF, 5),
    BoundaryRecord("job", Epoch(7), Generation(3), "change"),
]
MANIFEST_BYTES = encode_manifest(MANIFEST)
SUBTASK_BYTES = encode_subtask(SUBTASK)


def sealed(body: Any) -> bytes:
    """A record as `encode` would write it, whatever it says: its checksum is right."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=True)
    return f'{text[:-1]},"crc32":"{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def body_of(record: Record) -> dict[str, Any]:
    body = json.loads(record.encode())
    del body["crc32"]
    return dict(body)


@FUZZ
@given(mutated(MANIFEST_BYTES) | mutated_message(MANIFEST_BYTES))
def test_a_manifest_decodes_or_is_refused(data: bytes) -> None:
    manifest = decodes_or_refuses(lambda: decode_manifest(data, "m", "job"))
    if manifest is not None:
        assert decode_manifest(encode_manifest(manifest), "m", "job") == manifest


@FUZZ
@given(mutated(SUBTASK_BYTES) | mutated_message(SUBTASK_BYTES))
def test_subtask_metadata_decodes_or_is_refused(data: bytes) -> None:
    metadata = decodes_or_refuses(lambda: decode_subtask(data, "s", "job"))
    if metadata is not None:
        assert decode_subtask(encode_subtask(metadata), "s", "job") == metadata


@FUZZ
@given(st.sampled_from(RECORDS).flatmap(lambda record: st.tuples(st.just(record), mutated(record.encode()))))
def test_a_changed_record_is_refused(case: tuple[Record, bytes]) -> None:
    record, data = case
    found = decodes_or_refuses(lambda: type(record).decode(data, "r", "job"))
    assert found is None or data == found.encode()


def forged_records() -> st.SearchStrategy[tuple[Record, Any]]:
    return st.sampled_from(RECORDS).flatmap(
        lambda record: st.tuples(st.just(record), mutated_tree(body_of(record), surrogates=True))
    )


@FUZZ
@given(forged_records())
@example((RECORDS[1], {**body_of(RECORDS[1]), "manifest": {"path": 5, "size_bytes": 1, "checksum": "0"}}))
@example(
    (RECORDS[1], {**body_of(RECORDS[1]), "manifest": {"path": "a", "size_bytes": 1e400, "checksum": "0"}})
)
def test_a_forged_record_with_the_right_checksum_decodes_or_is_refused(case: tuple[Record, Any]) -> None:
    record, body = case
    try:
        data = sealed(body)
    except (TypeError, ValueError, RecursionError):
        data = repr(body).encode(errors="replace")
    decodes_or_refuses(lambda: type(record).decode(data, "r", "job"))


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"crc32":["'])
def test_a_record_of_nothing_but_openings_is_refused(opening: str) -> None:
    data = (opening * 65_536)[:65_536].encode()
    assert decodes_or_refuses(lambda: EpochRecord.decode(data, "r", "job")) is None


ENTRY = EntryRecord("key", "0" * 16, Stamp(1, 2, 3, 4, "boot"))
ENTRY_TREE = {"key": "k", "checksum": "0", "stamp": {"size_bytes": 1, "inode": 2, "boot_id": "b"}}


@FUZZ
@given(mutated(json.dumps(ENTRY_TREE).encode()) | mutated_tree(ENTRY_TREE, surrogates=False).map(repr))
@example(b'{"x":' + b"[" * 2_000)
def test_the_record_of_a_cached_run_decodes_or_counts_as_absent(data: bytes | str) -> None:
    found = decode_record(data if isinstance(data, bytes) else data.encode())
    assert found is None or isinstance(found, EntryRecord)


KEY_VALUES = {
    "format_version": "1",
    "table": "t",
    "table_type": "keyed",
    "state_version": "1",
    "key_columns": "k",
}


@FUZZ
@given(
    st.dictionaries(
        st.sampled_from([f"lakestate.{name}".encode() for name in KEY_VALUES]),
        st.sampled_from([text.encode() for text in TEXTS]) | st.binary(max_size=10),
    )
)
@example({b"lakestate.format_version": b"9" * 5000})
def test_the_identity_of_a_data_file_decodes_or_is_refused(changed: dict[bytes, bytes]) -> None:
    valid = {f"lakestate.{name}".encode(): value.encode() for name, value in KEY_VALUES.items()}
    decodes_or_refuses(lambda: CheckpointParquetMetadata.from_key_values({**valid, **changed}, "file"))


@FUZZ
@given(st.text("abint<>(),:`0123456789 struct", max_size=60) | st.sampled_from(TEXTS) | st.text(max_size=20))
@example("array<" * 2_000)
@example("struct<a:" * 2_000)
@example("decimal(" + "9" * 5000 + ")")
def test_a_column_type_is_parsed_or_refused(text: str) -> None:
    decodes_or_refuses(lambda: arrow_type(text))
    decodes_or_refuses(lambda: columns_of(f"a {text}", what="value"))


def test_deep_nesting_does_not_end_the_process() -> None:
    decodes_or_refuses(lambda: EpochRecord.decode(sealed({"record": nested(900)}), "r", "job"))
