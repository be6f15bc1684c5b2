"""Layers in the run cache: damaged, unusable, or of files that are encoded otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.jobs.replicated_operator import TOTALS, ReplicatedOperator, operator_with, without_checksum

from lakestate.errors import CorruptionError, StorageUnavailableError
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.global_keyed import layer_cache
from lakestate.tables.global_keyed.files import entry_rows
from lakestate.tables.global_keyed.packing import pack_bytes
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.parquet import encode_run

ONE_HOST = pytest.mark.parametrize("host", ["one-host"], indirect=True)


def with_files() -> ReplicatedOperator:
    operator = operator_with({"a": 1, "b": 2})
    operator.views[0].insert("c", 3)
    operator.checkpoint()
    return operator


def cached_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "host").glob("*.run"))


@ONE_HOST
def test_a_damaged_cached_layer_is_fetched_again(tmp_path: Path) -> None:
    operator = with_files()
    for path in cached_files(tmp_path):
        path.write_bytes(b"damaged")
    operator.restore(1)
    assert operator.views[0].get("a") == 1
    assert operator.views[0].get_all() == {"a": 1, "b": 2, "c": 3}


@ONE_HOST
@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"other": [1]}),
        pa.table({"hash": [1], "source": [1], "key": [b"a"], "value": [b"b"]}),
        pa.table(
            [
                pa.array([1], pa.uint64()),
                pa.array([99], pa.uint32()),
                pa.array([b"a"], pa.large_binary()),
                pa.array([b"b"], pa.large_binary()),
            ],
            schema=layer_cache.SCHEMA,
        ),
    ],
    ids=["other columns", "other types", "an unknown file"],
)
def test_a_cached_file_that_is_not_a_layer_is_not_used(
    rows: pa.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write_rows(path: Path, layer: Any) -> None:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)

    with monkeypatch.context() as patch:
        patch.setattr(layer_cache, "_write_layer", write_rows)
        operator = with_files()
    operator.restore(1)
    assert [operator.views[0].get(key) for key in "abcd"] == [1, 2, 3, None]
    assert "cached entries cannot be read and are fetched again" in caplog.text


@ONE_HOST
def test_a_cache_that_cannot_be_used_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise StorageUnavailableError("the disk of the run cache is full")

    monkeypatch.setattr(RunCache, "open", fail)
    operator = with_files()
    operator.restore(1)
    assert operator.views[0].get("a") == 1
    assert "entries are not kept in the cache" in caplog.text
    monkeypatch.setattr(RunCache, "find", fail)
    operator.restore(1)
    assert operator.views[0].get_all() == {"a": 1, "b": 2, "c": 3}


@ONE_HOST
def test_what_the_store_says_is_raised_and_not_tried_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = with_files()
    other = RunCache(tmp_path / "other", 1 << 30)
    monkeypatch.setattr(ReplicatedOperator, "find_cache", staticmethod(lambda: other))
    operator.restore(1)
    calls = []

    def fail(*_: Any) -> Any:
        calls.append("get_many")
        raise StorageUnavailableError("the store does not answer")

    monkeypatch.setattr(type(operator.objects.store), "get_many", fail)
    with pytest.raises(StorageUnavailableError, match="the store does not answer"):
        operator.views[0].get("a")
    assert calls == ["get_many"]


def stored_as(keys: list[bytes], values: list[bytes], operator: ReplicatedOperator) -> ReplicatedOperator:
    """The operator with other bytes in its only file, as another encoder would have written them."""
    identity = CheckpointParquetMetadata.of(operator.table.config).to_key_values()
    data = encode_run(entry_rows(pack_bytes(keys), pack_bytes(values)), identity).to_pybytes()
    operator.overwrite(operator.files.files[0].path, data)
    operator.files = without_checksum(operator.files, data)
    operator.restore(1)
    return operator


def test_keys_that_were_encoded_otherwise_are_found() -> None:
    operator = operator_with({1: 10, 2: 20}, GlobalKeyedTable("totals", key=int, value=int))
    # MessagePack allows longer forms of a number than are needed.
    longer = [b"\xcc\x01", b"\xd3" + (2).to_bytes(8, "big")]
    assert list(map(msgspec.msgpack.decode, longer)) == [1, 2]
    operator = stored_as(longer, [b"\x0a", b"\x14"], operator)
    view = operator.views[0]
    assert (view.get(1), view.get(2), view.remove(2)) == (10, 20, 20)
    operator.checkpoint()
    operator.compact()
    operator.restore(1)
    assert operator.views[0].get_all() == {1: 10}


@ONE_HOST
def test_a_key_in_two_forms_is_a_key_twice() -> None:
    operator = operator_with({1: 10, 2: 20}, GlobalKeyedTable("totals", key=int, value=int))
    operator = stored_as([b"\x01", b"\xcc\x01"], [b"\x0a", b"\x14"], operator)
    with pytest.raises(CorruptionError, match="a key twice"):
        operator.views[0].get(1)


@ONE_HOST
def test_the_file_of_a_damaged_value_is_named_among_several() -> None:
    operator = operator_with({"a": 1})
    operator = stored_as([b"\xa1a"], [b"\xc1"], operator)
    damaged = operator.files.files[0].path
    operator.views[0].insert("b", 2)
    operator.checkpoint()
    operator.restore(1)
    assert operator.views[0].get("b") == 2
    for read in (lambda: operator.views[0].get("a"), operator.views[0].get_all):
        with pytest.raises(CorruptionError, match=damaged):
            read()


@ONE_HOST
def test_merges_are_kept_by_who_made_them(tmp_path: Path) -> None:
    operator = with_files()
    operator.compact()
    before = len(cached_files(tmp_path))
    operator.restore(1)
    assert operator.views[0].get_all() == {"a": 1, "b": 2, "c": 3}
    assert len(cached_files(tmp_path)) == before


@ONE_HOST
def test_layers_of_many_subtasks_hold_few_descriptors() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=40)
    for index, view in enumerate(operator.views):
        view.insert(f"{index}", index)
    operator.checkpoint()
    before = len(list(Path("/proc/self/fd").iterdir()))
    operator.restore(40)
    assert [view.get("7") for view in operator.views] == [7] * 40
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


@ONE_HOST
def test_the_number_of_cached_layers_does_not_grow(tmp_path: Path) -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=3)
    known, counts = operator.files.files, []
    for epoch in range(60):
        for index, view in enumerate(operator.views):
            assert view.get(f"{index}-{epoch - 1}") == (epoch - 1 if epoch else None)
            view.insert(f"{index}-{epoch}", epoch)
        operator.checkpoint()
        # As the driver does once an epoch is published.
        gone = [file for file in known if file not in operator.files.files]
        TOTALS.forget_files(gone, operator.contexts[0])
        known = operator.files.files
        operator.compact(CompactionPolicy(files_min=6, files_max=12))
        operator.restore(3)
        counts.append(len(cached_files(tmp_path)))
    assert max(counts) <= 30
    assert max(counts[30:]) <= max(counts[:30])
