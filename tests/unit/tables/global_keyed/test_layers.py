"""Layers: what is searched, merged, counted and planned, against dicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakestate.protocol.values import Epoch, FileRef, Generation
from lakestate.tables.global_keyed import layer as layers
from lakestate.tables.global_keyed.layer import (
    ABSENT,
    Layer,
    count_live,
    has_a_key_twice,
    hash_key,
    hash_keys,
    last_of_each_key,
    layer_of,
    merge_layers,
)
from lakestate.tables.global_keyed.layer_plan import MERGED_BYTES_MIN, PlannedLayer, plan_layers

KEYS = st.binary(max_size=3)
ENTRIES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), min_size=1, max_size=12)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True, params=["no-cache"])
def host(request: pytest.FixtureRequest) -> str:
    """Layers know no cache: once is enough."""
    return str(request.param)


@pytest.fixture(params=["hashed", "colliding"])
def _hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as it is, and once with a hash of which there are only three."""
    if request.param == "colliding":
        monkeypatch.setattr(layers, "hash_key", few_hashes)
        monkeypatch.setattr(
            layers,
            "hash_keys",
            lambda keys: np.array(list(map(few_hashes, keys.to_pylist())), dtype=np.uint64),
        )


def few_hashes(key: bytes) -> int:
    return len(key) % 3 + 2**63


def layer_with(entries: dict[bytes, bytes | None]) -> Layer:
    return layer_of(column(list(entries)), column(list(entries.values())))


def column(items: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(items, pa.binary())])


def entries_of(layer: Layer) -> dict[bytes, bytes | None]:
    assert not has_a_key_twice(layer)
    assert layer.hashes.tolist() == sorted(layer.hashes.tolist())
    return dict(zip(layer.keys.to_pylist(), layer.values.to_pylist(), strict=True))


def find(layer: Layer, key: bytes) -> Any:
    place = layer.find(key, layers.hash_key(key))
    return "absent" if place == ABSENT else layer.values[place].as_py()


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=300))
def test_many_keys_are_hashed_as_one_is(keys: list[bytes]) -> None:
    assert hash_keys(pa.array(keys, pa.large_binary())).tolist() == [hash_key(key) for key in keys]


@pytest.mark.usefixtures("_hashes")
@SHARED
@given(ENTRIES, KEYS)
def test_a_key_is_found_if_it_is_there(entries: dict[bytes, bytes | None], other: bytes) -> None:
    layer = layer_with(entries)
    assert {key: find(layer, key) for key in entries} == entries
    assert find(layer, other) == entries.get(other, "absent")


@pytest.mark.usefixtures("_hashes")
@SHARED
@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_a_merge_holds_the_newest_entry_of_each_key_and_its_file(parts: list[dict[bytes, Any]]) -> None:
    merged = merge_layers([layer_with(part) for part in parts], [1] * len(parts))
    expected: dict[bytes, Any] = {}
    for part in reversed(parts):
        expected.update(part)
    assert entries_of(merged) == expected
    newest = {key: next(place for place, part in enumerate(parts) if key in part) for key in expected}
    assert {key: merged.source(place) for place, key in enumerate(merged.keys.to_pylist())} == newest


@pytest.mark.usefixtures("_hashes")
@SHARED
@given(st.lists(ENTRIES, max_size=4))
def test_keys_are_counted_without_merging_the_oldest_layer(parts: list[dict[bytes, Any]]) -> None:
    expected: dict[bytes, Any] = {}
    for part in reversed(parts):
        expected.update(part)
    live = sum(value is not None for value in expected.values())
    assert count_live([layer_with(part) for part in parts]) == live


@pytest.mark.usefixtures("_hashes")
@SHARED
@given(st.lists(st.tuples(KEYS, st.binary(max_size=3)), min_size=1, max_size=12))
def test_of_a_key_that_was_written_again_the_last_value_counts(pairs: list[tuple[bytes, bytes]]) -> None:
    rows = pa.table(
        {"key": column([key for key, _ in pairs]), "value": column([value for _, value in pairs])}
    )
    found = last_of_each_key(rows)
    assert found is not None
    assert len(found) == len(dict(pairs))
    assert {row["key"]: row["value"] for row in found.to_pylist()} == dict(pairs)


def test_a_key_that_is_there_twice_is_noticed() -> None:
    assert has_a_key_twice(layer_of(column([b"a", b"b", b"a"]), column([b"1", b"2", b"3"])))


# Plans


def file_of(epoch: int, size_bytes: int, subtask: int = 0) -> FileRef:
    path = f"{epoch}-{subtask}.parquet"
    return FileRef(path, size_bytes, 1, 1, Epoch(epoch), Generation(1), subtask, 1, 1)


def files_of(sizes: list[int], subtasks: int = 1) -> list[FileRef]:
    """Epochs, newest first, that wrote so many bytes in each subtask."""
    epochs = range(len(sizes), 0, -1)
    return [
        file_of(epoch, size, subtask)
        for epoch, size in zip(epochs, sizes, strict=True)
        for subtask in range(subtasks - 1, -1, -1)
    ]


def all_parts(planned: PlannedLayer) -> Iterator[PlannedLayer]:
    yield planned
    for part in planned.parts:
        yield from all_parts(part)


@given(st.lists(st.integers(1, 10 * MERGED_BYTES_MIN), max_size=40), st.integers(1, 3))
def test_layers_are_all_files_in_their_order(sizes: list[int], subtasks: int) -> None:
    files = files_of(sizes, subtasks)
    planned = plan_layers(files)
    assert [file for layer in planned for file in layer.files] == files
    for layer in planned:
        for part in all_parts(layer):
            assert [file for piece in part.parts for file in piece.files] in ([], list(part.files))


@given(st.lists(st.integers(1, 10 * MERGED_BYTES_MIN), min_size=1, max_size=40))
def test_a_layer_is_a_layer_of_the_epoch_before_or_made_of_those(sizes: list[int]) -> None:
    files = files_of(sizes)
    before = set(plan_layers(files[1:]))
    newest, *others = plan_layers(files)
    assert before.issuperset(others)
    assert before.union(plan_layers(files[:1])).issuperset(newest.merged or (newest,))


@pytest.mark.parametrize("subtasks", [1, 64])
def test_many_small_epochs_on_a_large_file_are_few_layers(subtasks: int) -> None:
    large = file_of(1, 2000 * subtasks * MERGED_BYTES_MIN)
    small = files_of([MERGED_BYTES_MIN] * 1001, subtasks)[:-subtasks]
    planned = plan_layers([*small, large])
    assert planned[-1].files == (large,)
    assert len(planned) <= 11


def test_tiny_epochs_are_one_layer() -> None:
    assert [len(layer.files) for layer in plan_layers(files_of([1] * 20))] == [20]
