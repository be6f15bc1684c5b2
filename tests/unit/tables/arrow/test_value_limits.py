"""Long keys and values: what works, how it is stored, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.tables.arrow import value_limits
from lakestate.tables.arrow.schema import arrow_type
from lakestate.tables.global_keyed import packing
from lakestate.tables.runs.parquet import encode_run, long_columns

KEYED = ls.KeyedTable("t", key="k string", value="n bigint")


class TestKeysAndValues:
    def test_a_key_of_a_megabyte_is_found_again(self, jobs: Any) -> None:
        job = jobs([KEYED, ls.GlobalKeyedTable("g", key=str, value=int)])
        key = "x" * (1 << 20)
        rows = pa.table({"k": [key, f"{key}y", "short"], "n": [1, 2, 3]})
        job.managers[0].keyed("t").put(rows)
        job.managers[0].global_keyed("g").insert(key, 4)
        job.checkpoint()
        job.restart()
        assert job.managers[0].keyed("t").get(rows.select(["k"])).column("n").to_pylist() == [1, 2, 3]
        assert job.managers[0].global_keyed("g").get(key) == 4

    def test_long_values_are_stored_without_statistics_and_come_back(self) -> None:
        rows = pa.table({"k": [1, 2], "v": [b"x" * (64 << 10), b"short"], "s": ["a", "b"]})
        assert long_columns([rows]) == {"v"}
        file = pq.ParquetFile(pa.BufferReader(encode_run(rows, {})))
        has_statistics = {
            column.path_in_schema: column.statistics is not None and column.statistics.has_min_max
            for column in (file.metadata.row_group(0).column(number) for number in range(3))
        }
        assert has_statistics == {"k": True, "v": False, "s": True}
        assert file.read().equals(rows)

    def test_a_value_beyond_the_limit_is_refused_by_name_before_anything_is_stored(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (value_limits, packing):
            monkeypatch.setattr(module, "VALUE_BYTES_MAX", 1000)
        job = jobs([KEYED, ls.KeyedTable("v", key="k bigint", value="v binary"), global_table()])
        manager = job.managers[0]
        with pytest.raises(InvalidInputError, match=r"a value is too long: v; found 1,001 bytes"):
            manager.keyed("v").put(pa.table({"k": [1], "v": [b"x" * 1001]}))
        with pytest.raises(InvalidInputError, match=r"a value is too long: k; found 1,001 bytes"):
            manager.keyed("t").put(pa.table({"k": ["x" * 1001], "n": [1]}))
        manager.keyed("v").put(pa.table({"k": [1], "v": [b"x" * 1000]}))
        manager.global_keyed("g").insert("large", b"x" * 1001)
        before = objects_of(job)
        with pytest.raises(InvalidInputError, match=r"table g cannot store a value: key 'large'"):
            manager.checkpoint(1, 1, None, False)
        assert not any("/g-" in path for path in objects_of(job) - before)

    @pytest.mark.parametrize(
        ("type_", "longest", "too_long"),
        [
            ("array<string>", ["x" * 500, "y" * 500], ["x" * 500, "y" * 501]),
            ("struct<a:string,b:binary>", {"a": "x" * 999, "b": b"y"}, {"a": "x" * 999, "b": b"yy"}),
            ("map<string,string>", [("key", "x" * 997)], [("key", "x" * 998)]),
            ("array<struct<tags:array<string>>>", [{"tags": ["x"]}] * 1000, [{"tags": ["x"]}] * 1001),
            ("array<tinyint>", [1] * 1000, [1] * 1001),
        ],
    )
    def test_a_nested_value_is_as_long_as_all_that_is_in_it(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch, type_: str, longest: Any, too_long: Any
    ) -> None:
        monkeypatch.setattr(value_limits, "VALUE_BYTES_MAX", 1000)
        view = jobs([ls.KeyedTable("t", key="k bigint", value=f"v {type_}")]).managers[0].keyed("t")
        column = pa.array([longest, None, longest, too_long], arrow_type(type_))
        rows = pa.table({"k": range(4), "v": column})
        with pytest.raises(InvalidInputError, match=r"a value is too long: v; found 1,001 bytes"):
            view.put(rows)
        # Each row counts for itself, and what was cut off does not count.
        view.put(rows.slice(0, 3))
        assert view.get(pa.table({"k": [2]})).column("v").to_pylist() == [longest]

    def test_long_nested_values_are_stored_without_statistics_and_come_back(self) -> None:
        tags = pa.array([["x" * (32 << 10)] * 2, None, ["short"]])
        rows = pa.table({"k": [1, 2, 3], "v": tags})
        assert long_columns([rows]) == {"v"}
        file = pq.ParquetFile(pa.BufferReader(encode_run(rows, {})))
        columns = [file.metadata.row_group(0).column(number) for number in range(2)]
        assert [column.is_stats_set for column in columns] == [True, False]
        assert file.read().to_pylist() == rows.to_pylist()

    def test_more_text_than_an_arrow_array_counts_is_refused_in_one_call(self, jobs: Any) -> None:
        job = jobs([ls.KeyedTable("t", key="k bigint", value="v binary")])
        size = 720 << 20
        # At its full size, and yet in no memory: pages that nobody has written are not there.
        buffers = [None, pa.py_buffer(np.array([0, size], np.int32)), pa.py_buffer(bytes(size))]
        value = pa.Array.from_buffers(pa.binary(), 1, buffers)
        rows = pa.table({"k": range(3), "v": pa.chunked_array([value] * 3)})
        with pytest.raises(InvalidInputError, match=r"too many bytes at once: v; found 2,26\d,\d+,\d+ bytes"):
            job.managers[0].keyed("t").put(rows)
        assert job.managers[0].keyed("t").count() == 0

    def test_entries_are_stored_in_chunks_that_arrow_can_count(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(packing, "VALUE_BYTES_MAX", 1000)
        job = jobs([global_table()])
        view = job.managers[0].global_keyed("g")
        for number in range(10):
            view.insert(f"key {number}", bytes([number]) * 400)
        assert packing.pack_bytes([b"x" * 400] * 10).num_chunks == 5
        job.checkpoint()
        job.restart()
        found = job.managers[0].global_keyed("g")
        assert {key: found.get(key) for key in (f"key {number}" for number in range(10))} == {
            f"key {number}": bytes([number]) * 400 for number in range(10)
        }


def global_table() -> ls.GlobalKeyedTable:
    return ls.GlobalKeyedTable("g", key=str, value=bytes)


def objects_of(job: TableJob) -> set[str]:
    return {info.path for info in job.backend.objects("job").store.list()}
