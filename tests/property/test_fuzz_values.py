"""Hostile values: stored entries, reports, merges and Spark's files decode or are refused."""

from __future__ import annotations

import datetime as dt
import enum
import tempfile
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.fuzzing.hostile_bytes import FUZZ, TEXTS, decodes_or_refuses, mutated, mutated_tree, nested
from tests.support.metadata import MANIFEST, SUBTASK

from lakestate.coordinator.engine.batches import engine_files_without_batch
from lakestate.coordinator.epoch_plan import (
    StepMetrics,
    SubtaskReport,
    decode_merges,
    decode_pre_commits,
    encode_merges,
)
from lakestate.errors import LakestateError
from lakestate.protocol.metadata import NamedBytes
from lakestate.protocol.values import Epoch
from lakestate.spark.checkpoint.offsets import (
    files_to_rebuild,
    rebuild_directory,
    source_offsets,
)
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.global_keyed.python_types import StoredType
from lakestate.tables.global_keyed.value_codec import EntryCodec

pytestmark = pytest.mark.fuzz


class Colour(enum.Enum):
    RED = "red"


class Place(NamedTuple):
    city: str
    zip: int | None


class Node(msgspec.Struct):
    name: str
    when: dt.datetime | None = None
    next: Node | None = None
    children: list[Node] = []


VALUES: list[tuple[Any, Any]] = [
    (int, 5),
    (float, 0.5),
    (str, "text"),
    (bytes, b"bytes"),
    (Decimal, Decimal("1.5")),
    (dt.datetime, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    (dt.timedelta, dt.timedelta(seconds=5)),
    (dt.date, dt.date(2026, 1, 1)),
    (uuid.UUID, uuid.UUID(int=5)),
    (Colour, Colour.RED),
    (Place, Place("Graz", 8010)),
    (dict[str, list[int | None]], {"a": [1, None]}),
    (frozenset[str], frozenset({"a"})),
    (Node, Node("a", None, Node("b"), [Node("c")])),
]
KEYS = [(kind, value) for kind, value in VALUES if kind not in (Node, dict[str, list[int | None]])]


def codec_of(key: Any, value: Any) -> EntryCodec:
    return EntryCodec("t", StoredType.of_key(key, "t"), StoredType.of_value(value, "t"), 1)


def plain(data: bytes) -> Any:
    return msgspec.msgpack.decode(data)


def packed(tree: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(tree)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return b"\x91" * 3000


def hostile_packed(data: bytes) -> st.SearchStrategy[bytes]:
    """MessagePack that is damaged, and MessagePack that is valid and says something else."""
    return mutated(data) | mutated_tree(plain(data)).map(packed)


def stored(kind: Any, value: Any) -> tuple[Any, bytes]:
    return kind, msgspec.msgpack.encode(value)


STORED_VALUES = [stored(*pair) for pair in VALUES]
STORED_KEYS = [stored(*pair) for pair in KEYS]
DEEP = b"\x91" * 3000
DEEP_MAP = b"\x81\xa1x" + b"\x91" * 3000


def cases(known: list[tuple[Any, bytes]]) -> st.SearchStrategy[tuple[Any, bytes]]:
    return st.sampled_from(known).flatmap(lambda case: st.tuples(st.just(case[0]), hostile_packed(case[1])))


@FUZZ
@given(cases(STORED_VALUES))
@example((Node, DEEP_MAP))
@example((Node, b"\x81\xa4next" * 3000 + b"\xc0"))
@example((str, b"\xa2\xff\xfe"))
@example((dt.timedelta, b"\xcb\x7f\xe0\x00\x00\x00\x00\x00\x00"))
def test_a_stored_value_decodes_or_is_refused(case: tuple[Any, bytes]) -> None:
    kind, data = case
    codec = codec_of(str, kind)
    decodes_or_refuses(lambda: codec.decode_values([data], ["key"], 1, "file"))


@FUZZ
@given(cases(STORED_KEYS))
@example((Decimal, b"\xaa1e99999999"))
def test_a_stored_key_decodes_or_is_refused(case: tuple[Any, bytes]) -> None:
    kind, data = case
    codec = codec_of(kind, int)
    keys = decodes_or_refuses(lambda: codec.decode_keys([data], "file"))
    if keys is not None:
        # A key that decodes can be looked up, and stored again.
        assert keys[0] in {keys[0]: 1} or keys[0] != keys[0]
        decodes_or_refuses(lambda: codec.encode(keys, [1]))
        found = decodes_or_refuses(lambda: codec.canonical_keys([data], "file"))
        if found is not None and keys[0] == keys[0]:
            assert codec.find_bytes(keys[0]) == found[0]


REPORT = SubtaskReport("stage", 1, (), {"op": StepMetrics(1, 2, 3, 4.0, 5)}, 1.0, 2.0, 3.0).encode()
FILES = SUBTASK.tables[1].files
MERGES = encode_merges({0: (CompactedFiles("users", FILES, FILES[:1]),)})
PRE_COMMITS = msgspec.msgpack.encode([b"one", b"two"])


@FUZZ
@given(hostile_packed(REPORT))
@example(DEEP)
@example(b"\x81\xa5stage\xa2\xff\xfe")
def test_the_report_of_a_subtask_decodes_or_is_refused(data: bytes) -> None:
    decodes_or_refuses(lambda: SubtaskReport.decode(data))


@FUZZ
@given(hostile_packed(MERGES))
def test_merges_decode_or_are_refused(data: bytes) -> None:
    decodes_or_refuses(lambda: decode_merges(data))


@FUZZ
@given(hostile_packed(PRE_COMMITS))
@example(b"\xdd\xff\xff\xff\xff")
def test_pre_commits_in_a_manifest_decode_or_are_refused(data: bytes) -> None:
    decodes_or_refuses(lambda: decode_pre_commits(data, "manifest"))


SPARK_NAMES = ["metadata", "offsets/6", "offsets/7", "commits/6", "commits/7", "sources/0/3.compact"]
SPARK_FILES = st.lists(
    st.builds(
        lambda name, data: (name, data),
        st.sampled_from([*SPARK_NAMES, *TEXTS, "offsets", "metadata/x", "sources/0"]),
        st.sampled_from([b"", b"v1\n{}\n{}", b"v3\n{}\n{}", b"v1", b"\xff\xfe", b"v1\n" * 50])
        | st.binary(max_size=20),
    ),
    max_size=8,
)


def named(files: list[tuple[str, bytes]]) -> list[NamedBytes]:
    """The files that a manifest may name; decoding one refuses the others."""
    found = []
    for name, data in files:
        try:
            found.append(NamedBytes(name, data))
        except LakestateError:
            continue
    return found


@FUZZ
@given(SPARK_FILES)
@example([("offsets/7", b"\xff\xfe")])
@example([("offsets/7", b"v1")])
@example([("offsets", b""), ("offsets/7", b"")])
@example([("offsets/7", b""), ("offsets", b"")])
def test_sparks_files_are_put_back_below_their_directory_or_refused(files: list[tuple[str, bytes]]) -> None:
    kept = named(files)
    decodes_or_refuses(lambda: source_offsets(kept, Epoch(8), 1))
    manifest = replace(MANIFEST, epoch=Epoch(8), engine_files=tuple(kept))
    decodes_or_refuses(lambda: engine_files_without_batch(manifest, Epoch(9)))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "spark"
        decodes_or_refuses(
            lambda: rebuild_directory(root, files_to_rebuild(kept, Epoch(8), lambda log, path: None)), root
        )
        assert [path.name for path in Path(folder).iterdir()] in ([], ["spark"])


def test_nesting_deeper_than_the_stack_is_refused() -> None:
    with pytest.raises(LakestateError):
        codec_of(str, list[list[int]]).decode_values([packed(nested(2000))], ["k"], 1, "file")
