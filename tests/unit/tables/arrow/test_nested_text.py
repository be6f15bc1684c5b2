"""Text inside of arrays, maps and structs, more than one array of Arrow's can hold: limits made small."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.tables.arrow.wide_text import narrow_text, widen_text
from lakestate.tables.runs import parquet as run_parquet
from lakestate.tables.runs.layout import RunLayout

TABLE = ls.KeyedTable(
    "t", key="k bigint", value="tags array<string>, more struct<a:string,m:map<string,array<string>>>"
)

pytestmark = pytest.mark.usefixtures("separate_runs")
SCHEMA = RunLayout(TABLE.config).row_schema
KEYS = 300
LIMIT_BYTES = 1000


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakestate.tables.arrow.wide_text.CHUNK_BYTES_MAX", LIMIT_BYTES)
    monkeypatch.setattr(run_parquet, "NESTED_BYTES_MAX", LIMIT_BYTES)


@pytest.fixture
def job() -> Iterator[TableJob]:
    made = TableJob([TABLE])
    yield made
    made.close()


def row(key: int) -> dict[str, Any]:
    tags = None if key % 7 == 0 else [f"tag {key}", None, "x" * (key % 40)]
    inner = (
        None if key % 5 == 0 else {"a": f"a {key}", "m": [("all", [str(key)] * (key % 4)), ("none", None)]}
    )
    return {"k": key, "tags": tags, "more": inner}


def rows(keys: range) -> pa.Table:
    return pa.Table.from_pylist([row(key) for key in keys], schema=SCHEMA)


def found(job: TableJob, parallelism: int = 1) -> list[dict[str, Any]]:
    batches = [batch for manager in job.opened(job.epoch, parallelism) for batch in manager.keyed("t").scan()]
    for batch in batches:
        batch.validate(full=True)
    return sorted((each for batch in batches for each in batch.to_pylist()), key=lambda each: each["k"])


def test_it_is_stored_merged_and_restored_at_any_parallelism(job: TableJob) -> None:
    for part in range(3):
        job.managers[0].keyed("t").put(rows(range(part * 100, part * 100 + 100)))
        job.checkpoint()
    job.compact()
    job.restart()
    job.checkpoint()
    expected = [row(key) for key in range(KEYS)]
    [file] = job.backend.load_operator_metadata("job", 4, "op")[0].tables[0].files
    assert len(file.blocks) > 5
    for parallelism in (1, 3):
        assert found(job, parallelism) == expected
    answer = job.opened(job.epoch)[0].keyed("t").get(pa.table({"k": [150, 7, 1000]})).to_pylist()
    assert [each["tags"] for each in answer] == [row(150)["tags"], None, None]
    assert ls.verify(job.backend, "job").is_clean


def test_no_row_group_holds_more_than_can_be_read_back() -> None:
    given = rows(range(KEYS))
    bounds = list(run_parquet.row_group_bounds(given))
    assert bounds[0][0] == 0
    assert bounds[-1][1] == KEYS
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert (
        max(given.slice(start, stop - start).column("tags").nbytes for start, stop in bounds)
        < 2 * LIMIT_BYTES
    )
    data = run_parquet.encode_run(given, {})
    assert run_parquet.decode_run(data, "here", KEYS).to_pylist() == given.to_pylist()


def test_row_groups_that_cannot_be_read_together_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = rows(range(KEYS))
    data = run_parquet.encode_run(given, {})

    def refused(*_: object, **__: object) -> pa.Table:
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read_row_groups", refused)
    assert run_parquet.decode_run(data, "here", KEYS).to_pylist() == given.to_pylist()


def test_64_bit_offsets_and_back_change_nothing() -> None:
    given = rows(range(KEYS))
    wide = widen_text(given).combine_chunks()
    assert wide.schema.field("tags").type == pa.large_list(pa.field("element", pa.large_string()))
    back = narrow_text(wide.slice(20), given.schema)
    assert back.schema == given.schema
    assert back.column("tags").num_chunks > 1
    back.validate(full=True)
    assert back.to_pylist() == given.slice(20).to_pylist()
