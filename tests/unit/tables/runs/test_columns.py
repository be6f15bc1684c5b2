"""Views that name the columns they use: only those are fetched, verified, and cached."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.table_job import EAGER, TableJob
from tests.support.small_files import shape_as_large

import lakestate as ls
from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.protocol.key_ranges import KEY_MAX, KeyRange
from lakestate.protocol.values import FileRef, TaskInfo
from lakestate.storage.cache.run_cache import RunCache
from lakestate.storage.parallel import InlineExecutor
from lakestate.storage.spans import merge_spans
from lakestate.storage.store import ByteRange
from lakestate.tables.manager import TableManager
from lakestate.tables.runs import files, parquet
from lakestate.tables.runs.partial_read import read_columns
from lakestate.testing import FaultyStore

ROWS = 300_000
TABLE = ls.KeyedTable(
    "t", key="k bigint", value="n bigint, page binary, at timestamp", ttl=ls.Ttl("1 day", column="at")
)
CLICKS = ls.TimeKeyTable("c", key="k bigint", value="page binary, n bigint, ts timestamp")
TIME = pa.timestamp("us", tz="UTC")


def _pages(count: int) -> pa.Array:
    """Values that do not compress: most of a file."""
    data = np.random.default_rng(1).integers(0, 256, 32 * count, dtype=np.uint8)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), count, [None, pa.py_buffer(data)])
    return fixed.cast(pa.binary())


@dataclass
class Fetched:
    """What was read of data files."""

    bytes_: int = 0
    requests: int = 0


class CountingStore(FaultyStore):
    """Counts what is fetched of data files."""

    def __init__(self, inner: Any, fetched: Fetched) -> None:
        super().__init__(inner)
        self._fetched = fetched

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        pieces = super().get_ranges(path, spans)
        # Near ranges are one request, with the bytes between them.
        self._fetched.bytes_ += sum(span.length for span in merge_spans(spans))
        self._fetched.requests += 1
        return pieces

    def get(self, path: str) -> Any:
        found = super().get(path)
        if path.endswith(".parquet"):
            self._fetched.bytes_ += len(found.data)
            self._fetched.requests += 1
        return found


@pytest.fixture(scope="module")
def job() -> Iterator[TableJob]:
    """One large file for each table."""
    job = TableJob([TABLE, CLICKS])
    keys, times = np.arange(ROWS), pa.array(np.arange(ROWS), TIME)
    job.managers[0].keyed("t").put(pa.table({"k": keys, "n": keys, "page": _pages(ROWS), "at": times}))
    job.managers[0].time_key("c").insert(pa.table({"k": keys, "page": _pages(ROWS), "n": keys, "ts": times}))
    job.checkpoint()
    yield job
    job.close()


def opened(job: TableJob, fetched: Fetched, cache: RunCache | None = None) -> TableManager:
    backend = ls.ParquetBackend(job.backend._config)
    backend.__dict__["cache"] = cache
    backend.__dict__["_store"] = CountingStore(job.backend.objects("job").store, fetched)
    return TableManager.load(TaskInfo("job", "op"), job.tables, backend, restore_from=job.epoch)


def file_of(job: TableJob, table: str) -> FileRef:
    found = job.backend.load_operator_metadata("job", job.epoch or 1, "op")[0].table(table)
    assert found is not None
    return found.files[0]


ASKED = pa.table({"k": [7, -1, 200_000]})


def test_a_lookup_fetches_the_named_columns_and_no_others(job: TableJob) -> None:
    size, seen = file_of(job, "t").size_bytes, {}
    for columns in (["n"], [], ["page"], None):
        fetched = Fetched()
        opened(job, fetched).keyed("t").get(ASKED, columns)
        seen[str(columns)] = round(fetched.bytes_ / size, 1)
        assert fetched.requests == (1 if columns is None else 2)
    # The key and the time, by which rows expire, are always needed.
    assert seen == {"['n']": 0.2, "[]": 0.1, "['page']": 1.0, "None": 1.0}


def test_what_is_found_does_not_depend_on_the_columns_that_are_fetched(job: TableJob) -> None:
    whole = opened(job, Fetched()).keyed("t")
    part = opened(job, Fetched()).keyed("t")
    expected = whole.get(ASKED)
    assert part.contains(ASKED).to_pylist() == [True, False, True]
    assert part.get(ASKED, ["n"]).to_pydict() == {"n": [7, None, 200_000]}
    assert part.get(ASKED, ["at", "n"]).equals(expected.select(["at", "n"]))
    assert part.get(ASKED).equals(expected)
    assert part.get(ASKED, []).num_rows == 3


def test_a_scan_and_a_count_fetch_what_they_return(job: TableJob) -> None:
    fetched = Fetched()
    view = opened(job, fetched).keyed("t")
    assert view.count() == ROWS
    rows = pa.Table.from_batches(view.scan(["n"]))
    assert rows.column_names == ["k", "n"]
    assert rows["k"].equals(rows["n"])
    assert fetched.bytes_ < 0.4 * file_of(job, "t").size_bytes


def test_rows_by_time_fetch_what_they_return(job: TableJob) -> None:
    fetched = Fetched()
    view = opened(job, fetched).time_key("c")
    between = view.rows_between(10, 13, columns=["n"])
    assert between.to_pydict() == {"k": [10, 11, 12], "n": [10, 11, 12]}
    of = view.rows_of(pa.table({"k": [5, 4]}), columns=["n"])
    assert of.to_pydict() == {"__query": [0, 1], "k": [5, 4], "n": [5, 4]}
    assert sum(batch.num_rows for batch in view.scan([])) == ROWS
    assert fetched.bytes_ < 0.3 * file_of(job, "c").size_bytes
    assert view.rows_between(10, 11).column_names == ["k", "page", "n", "ts"]


def test_columns_that_the_table_does_not_have_are_refused(job: TableJob) -> None:
    view = opened(job, Fetched()).keyed("t")
    with pytest.raises(
        InvalidInputError, match="no such value column: pag; found n, page, at; did you mean page"
    ):
        view.get(ASKED, ["pag"])
    with pytest.raises(InvalidInputError, match="columns takes a list of names"):
        view.get(ASKED, "n")
    with pytest.raises(InvalidInputError, match="no such value column: k;"):
        list(view.scan(["k"]))


def test_columns_written_in_this_epoch_and_stored_ones_are_combined(job: TableJob) -> None:
    view = opened(job, Fetched()).keyed("t")
    at = pa.array([0], TIME)
    view.put(pa.table({"k": [7], "n": [70], "page": pa.array([b"new"]), "at": at}))
    view.delete(pa.table({"k": [200_000]}))
    assert view.get(ASKED, ["n"])["n"].to_pylist() == [70, None, None]
    rows = pa.Table.from_batches(view.scan(["n"]))
    assert rows.num_rows == ROWS - 1
    assert rows.filter(pa.compute.equal(rows["k"], 7))["n"].to_pylist() == [70]


@pytest.mark.parametrize("table", ["t", "c"])
def test_a_flipped_bit_in_a_fetched_column_is_named_and_in_another_is_not_read(
    job: TableJob, table: str
) -> None:
    file, objects = file_of(job, table), job.backend.objects("job")
    path = objects.store_path(file.path)
    sound = bytes(objects.store.get(path).data)
    metadata = pq.read_metadata(pa.BufferReader(sound))
    names = [metadata.row_group(0).column(place).path_in_schema for place in range(metadata.num_columns)]
    damaged = bytearray(sound)
    # In the header of the first page, which the checksum of a page does not cover.
    damaged[parquet.column_chunks(metadata, 1)[names.index("page")].start + 2] ^= 1
    objects.store.put(path, bytes(damaged))
    try:
        with pytest.raises(CorruptionError, match="part of a data file does not match") as raised:
            _read(opened(job, Fetched()), table, ["page"])
        assert file.path in str(raised.value)
        _read(opened(job, Fetched()), table, ["n"])
    finally:
        objects.store.put(path, sound)


def _read(tables: TableManager, table: str, columns: list[str]) -> None:
    view: Any = tables.view(table)
    for _ in view.scan(columns):
        pass


def test_a_damaged_footer_is_named(job: TableJob) -> None:
    file, objects = file_of(job, "t"), job.backend.objects("job")
    path = objects.store_path(file.path)
    sound = bytes(objects.store.get(path).data)
    objects.store.put(path, sound[:-100] + bytes([sound[-100] ^ 1]) + sound[-99:])
    try:
        with pytest.raises(CorruptionError, match="part of a data file does not match"):
            opened(job, Fetched()).keyed("t").contains(ASKED)
    finally:
        objects.store.put(path, sound)


def test_a_column_is_cached_and_a_cached_run_serves_every_column(
    job: TableJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The cache is filled at once, and not beside the caller.
    monkeypatch.setattr(files, "writers", InlineExecutor)
    cache = RunCache(tmp_path, 1 << 30)
    fetched = [Fetched() for _ in range(5)]
    for each, columns in zip(fetched, (["n"], ["n"], None, ["page"], ["n"]), strict=True):
        tables = opened(job, each, cache)
        assert tables.keyed("t").get(ASKED, columns).num_rows == 3
    assert [each.requests for each in fetched] == [2, 0, 1, 0, 0]


def test_every_cached_part_of_a_file_that_is_gone_is_removed(
    job: TableJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "writers", InlineExecutor)
    cache = RunCache(tmp_path, 1 << 30)
    for columns in (["n"], [], ["page", "n"]):
        opened(job, Fetched(), cache).keyed("t").get(ASKED, columns)
    half = replace(file_of(job, "t"), valid_keys=KeyRange(0, KEY_MAX // 2))
    tables = opened(job, Fetched(), cache)
    files.open_run(half, TABLE.layout, tables._context)
    opened(job, Fetched(), cache).time_key("c").rows_between(10, 13, columns=["n"])
    assert cache.stats().entries == 5
    gc.collect()
    tables.forget_files({"t": [file_of(job, "t")]})
    assert cache.stats().entries == 1
    fetched = Fetched()
    opened(job, fetched, cache).time_key("c").rows_between(10, 13, columns=["n"])
    assert fetched.requests == 0


def test_a_file_without_column_checksums_is_read_as_before(
    job: TableJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As files of several row groups were written before."""
    older = TableJob([TABLE])
    monkeypatch.setattr(files, "add_column_checksums", lambda data, schema, key_values: data)
    keys = np.arange(ROWS)
    times = pa.array(np.arange(ROWS), TIME)
    older.managers[0].keyed("t").put(pa.table({"k": keys, "n": keys, "page": _pages(ROWS), "at": times}))
    older.checkpoint()
    fetched = Fetched()
    view = opened(older, fetched).keyed("t")
    assert view.get(ASKED, ["n"])["n"].to_pylist() == [7, None, 200_000]
    older.close()
    file = file_of(older, "t")
    assert read_columns(file, [0], ["k"], older.backend.objects("job")) is None
    assert fetched.bytes_ > file.size_bytes


def test_merged_files_have_column_checksums_too(monkeypatch: pytest.MonkeyPatch) -> None:
    job = TableJob([TABLE])
    for part in range(3):
        keys = np.arange(part * 50_000, (part + 1) * 50_000)
        times = pa.array(keys, TIME)
        job.managers[0].keyed("t").put(pa.table({"k": keys, "n": keys, "page": _pages(50_000), "at": times}))
        job.checkpoint()
    job.compact(EAGER)
    job.restart()
    job.checkpoint()
    fetched = Fetched()
    view = opened(job, fetched).keyed("t")
    assert view.get(pa.table({"k": [3, 149_999]}), ["n"])["n"].to_pylist() == [3, 149_999]
    job.close()
    assert fetched.bytes_ < 0.4 * file_of(job, "t").size_bytes
    assert ls.verify(job.backend, "job").is_clean


def test_whichever_byte_is_damaged_the_columns_are_right_or_the_file_is_named() -> None:
    with shape_as_large():
        job = TableJob([TABLE], caches=False)
        keys, at = np.arange(8), pa.array(np.arange(8), TIME)
        job.managers[0].keyed("t").put(pa.table({"k": keys, "n": keys, "page": _pages(8), "at": at}))
        job.checkpoint()
        file, objects = file_of(job, "t"), job.backend.objects("job")
        path = objects.store_path(file.path)
        sound = bytes(objects.store.get(path).data)
        groups = range(len(file.blocks))
        expected = read_columns(file, groups, ["k", "n"], objects)
        assert expected is not None
        outcomes = set()
        for place in range(len(sound)):
            objects.store.put(path, sound[:place] + bytes([sound[place] ^ 0x10]) + sound[place + 1 :])
            try:
                found = read_columns(file, groups, ["k", "n"], objects)
            except CorruptionError as error:
                outcomes.add("named" if file.path in str(error) else "not named")
            else:
                assert found is not None
                assert found[0].equals(expected[0])
                outcomes.add("right")
    job.close()
    assert outcomes == {"named", "right"}


def test_a_footer_that_points_elsewhere_is_refused(job: TableJob) -> None:
    file = file_of(job, "t")
    first = file.blocks[0]
    moved = replace(file, blocks=(replace(first, start=4, length=1), *file.blocks[1:]))
    with pytest.raises(CorruptionError, match="column chunk lies outside"):
        read_columns(moved, [0], ["k", "n"], job.backend.objects("job"))


def test_leaves_are_found_by_position() -> None:
    schema = pa.schema(
        [
            ("q", pa.struct([("r", pa.int64()), ("s", pa.list_(pa.string()))])),
            ("q.r", pa.int64()),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    assert [parquet.leaves_of(schema, [name]) for name in schema.names] == [[0, 1], [2], [3, 4]]
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    assert pq.read_metadata(pa.BufferReader(sink.getvalue())).num_columns == 5
