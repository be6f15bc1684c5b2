"""More text than the offsets of one Arrow array can count."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.tables.arrow import wide_text
from lakestate.tables.arrow.wide_text import narrow_text_column, one_array


class TestMoreTextThanOffsetsCount:
    """Runs of gigabytes hold text with 64-bit offsets. Here a kilobyte counts as that much."""

    @pytest.fixture(autouse=True)
    def _narrow_arrow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wide_text, "CHUNK_BYTES_MAX", 1000)

    def test_large_and_small_runs_of_a_keyed_table_are_read_and_merged_together(self, jobs: Any) -> None:
        job = jobs([ls.KeyedTable("t", key="k string", value="v string")])
        expected = {}
        for epoch, count in enumerate((100, 3, 3, 3)):
            rows = {f"key {number}": f"{epoch}" for number in range(count)}
            job.managers[0].keyed("t").put(pa.table({"k": list(rows), "v": list(rows.values())}))
            job.checkpoint()
            expected |= rows
        for step in (job.restart, job.compact, job.restart):
            step()
            table = pa.Table.from_batches(job.managers[0].keyed("t").scan())
            assert table.schema.types == [pa.string(), pa.string()]
            assert dict(zip(*table.to_pydict().values(), strict=True)) == expected

    def test_large_and_small_runs_of_a_time_key_table_are_read_and_merged_together(self, jobs: Any) -> None:
        job = jobs([ls.TimeKeyTable("t", key="k string", value="ts timestamp, v string", time="ts")])
        noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
        counts = (100, 3, 3, 3)
        for count in counts:
            keys = [f"key {number}" for number in range(count)]
            times = pa.array([noon] * count, pa.timestamp("us", tz="UTC"))
            job.managers[0].time_key("t").insert(pa.table({"k": keys, "ts": times, "v": keys}))
            job.checkpoint()
        for step in (job.restart, job.compact, job.restart):
            step()
            found = job.managers[0].time_key("t").rows_between(None, None)
            assert found.column("v").type == pa.string()
            expected = Counter(f"key {number}" for count in counts for number in range(count))
            assert Counter(found.column("v").to_pylist()) == expected

    def test_text_is_cut_into_chunks_where_offsets_would_not_do(self) -> None:
        texts = ["a" * 600, "b" * 600, None, "c" * 300, "d" * 300, "e" * 2000, "f"]
        column = narrow_text_column(pa.array(texts, pa.large_string()), pa.string())
        column.validate(full=True)
        assert column.to_pylist() == texts
        assert [len(chunk) for chunk in column.chunks] == [1, 3, 1, 1, 1]
        assert one_array(column).type == pa.large_string()
