"""`ls.read_state` against models: what was put, deleted, expired, compacted and rescaled."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.support.clocks import SetClock
from tests.support.jobs.counter_table import CounterTable
from tests.support.jobs.four_tables import CLICKS, LIMITS, TABLES, TOTALS, USERS, owned, run_history
from tests.support.jobs.table_job import EAGER, TableJob
from tests.support.repository import ROOT
from tests.support.small_files import shape_as_large

import lakestate as ls
from lakestate.errors import IncompatibleStateError, NotFoundError
from lakestate.inspection import StateSource
from lakestate.storage import open_store
from lakestate.tables.runs import parquet
from lakestate.testing import count_requests


@pytest.fixture
def jobs() -> Iterator[list[TableJob]]:
    started: list[TableJob] = []
    yield started
    for job in started:
        job.close()


def start(jobs: list[TableJob], *tables: ls.Table, parallelism: int = 1) -> TableJob:
    jobs.append(TableJob(tables, parallelism))
    return jobs[-1]


def url(job: TableJob) -> str:
    return job.backend.objects("job").store.url


def read(job: TableJob, table: str | ls.Table, epoch: int | None = None) -> list[dict[str, Any]]:
    return sorted(ls.read_state(url(job), "job", "op", table, epoch).to_pylist(), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [ExitStack, shape_as_large], ids=["small files", "many row groups"])
@pytest.mark.parametrize("seed", range(3))
def test_every_epoch_reads_as_the_model_says(
    jobs: list[TableJob], seed: int, shape: Callable[[], ExitStack]
) -> None:
    with shape():
        _compare_with_the_model(jobs, seed)


def _compare_with_the_model(jobs: list[TableJob], seed: int) -> None:
    job = start(jobs, *TABLES, parallelism=2)
    expected = run_history(job, seed)
    for epoch, tables in expected.items():
        assert {name: read(job, name, epoch) for name in tables} == tables
    assert read(job, "totals") == expected[max(expected)]["totals"]


def test_the_query_of_the_page_on_state_tables_is_exact(jobs: list[TableJob]) -> None:
    page = (ROOT / "docs" / "state-tables.md").read_text()
    (code,) = re.findall(r"```python\n(import duckdb\n.*?)```", page, re.DOTALL)
    table = ls.KeyedTable("totals", key="user string", value="n bigint, spend double", ttl="1 hour")
    job, rng, model = start(jobs, table, parallelism=2), random.Random(3), dict[str, float]()
    for parallelism in (2, 3, 1, 4, 4, 2):
        for index, manager in enumerate(job.managers):
            for user in owned(job, index, USERS):
                if rng.random() < 0.3:
                    manager.keyed("totals").delete(pa.table({"user": [user]}))
                    model.pop(user, None)
                else:
                    model[user] = float(rng.randrange(10**6))
                    row = pa.table({"user": [user], "n": [1], "spend": [model[user]]})
                    manager.keyed("totals").put(row)
        job.checkpoint()
        job.compact(EAGER)
        job.restart(parallelism=parallelism)
    code = code.replace("file:///data/checkpoints", url(job))
    names: dict[str, Any] = {"ls": ls}
    exec(code.replace('job="shop"', 'job="job"').replace('operator="totals"', 'operator="op"'), names)
    expected = sorted(model.items(), key=lambda item: -item[1])
    assert names["top"].fetchall() == expected[:5]
    assert names["state"].num_rows == len(model)


def test_a_time_to_live_by_the_clock_is_that_of_the_end_of_the_epoch() -> None:
    clock = SetClock(now=10_000)
    backend = ls.ParquetBackend("memory://read-state-clock", ambient=clock)
    table = ls.KeyedTable("t", key="k bigint", value="n bigint", ttl="10 seconds")
    tables = ls.TableManager.load(ls.TaskInfo("job", "op"), [table], backend, None)
    for epoch, now in ((1, 10_000), (2, 15_000), (3, 25_000)):
        clock.now = now
        tables.keyed("t").put(pa.table({"k": [epoch], "n": [epoch]}))
        done = tables.checkpoint(epoch, 1, None, False)
        backend.write_checkpoint_metadata("job", epoch, [done])
    found = [ls.read_state("memory://read-state-clock", "job", "op", "t", epoch) for epoch in (2, 3)]
    assert [sorted(rows["k"].to_pylist()) for rows in found] == [[1, 2], [3]]


def test_large_files_are_read_a_few_row_groups_at_a_time(
    jobs: list[TableJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 500)
    table = ls.KeyedTable("t", key="k bigint", value="n bigint")
    job = start(jobs, table)
    for step in (1, 7, 400):
        keys = np.arange(0, 5000, step)
        job.managers[0].keyed("t").put(pa.table({"k": keys, "n": keys + step}))
        job.checkpoint()
    source = StateSource.open(url(job), "job", "op", "t", None)
    batches = list(source.reader())
    model = {k: k + (400 if k % 400 == 0 else 7 if k % 7 == 0 else 1) for k in range(5000)}
    assert {k: n for batch in batches for k, n in zip(*batch.to_pydict().values(), strict=True)} == model
    assert sum(batch.num_rows for batch in batches) == 5000
    assert max(batch.num_rows for batch in batches) <= 1500


class Color(msgspec.Struct):
    red: int
    name: str | None = None


@pytest.mark.parametrize(
    ("declared", "value", "type_", "shown"),
    [
        (str, "a", pa.string(), "a"),
        (int, 7, pa.int64(), 7),
        (int, 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
        (float, 3, pa.float64(), 3.0),
        (bool, True, pa.bool_(), True),
        (bytes, b"\x00", pa.binary(), b"\x00"),
        (int | None, None, pa.int64(), None),
        (date, date(2026, 1, 2), pa.string(), "2026-01-02"),
        (datetime, datetime(2026, 1, 2, tzinfo=UTC), pa.string(), "2026-01-02T00:00:00+00:00"),
        (Decimal, Decimal("1.50"), pa.string(), "1.50"),
        (UUID, UUID(int=1), pa.string(), "00000000-0000-0000-0000-000000000001"),
        (dict[str, int], {"max": 1}, pa.string(), '{"max":1}'),
        (dict[int, bytes], {1: b"x"}, pa.string(), '[[1,"eA=="]]'),
        (tuple[float, ...], (float("inf"), 1.5), pa.string(), '["inf",1.5]'),
        (Color, Color(3), pa.string(), '{"red":3,"name":null}'),
    ],
    ids=str,
)
def test_python_values_become_plain_columns_or_json(
    jobs: list[TableJob], declared: Any, value: object, type_: pa.DataType, shown: object
) -> None:
    job = start(jobs, ls.GlobalKeyedTable("g", key=str, value=declared))
    job.managers[0].global_keyed("g").insert("k", value)
    job.checkpoint()
    found = ls.read_state(url(job), "job", "op", "g")
    assert (found.schema.field("value").type, found.to_pylist()) == (type_, [{"key": "k", "value": shown}])


def test_an_empty_table_has_the_declared_columns(jobs: list[TableJob]) -> None:
    job = start(jobs, TOTALS, CLICKS, LIMITS, parallelism=2)
    job.checkpoint()
    found = {name: ls.read_state(url(job), "job", "op", name) for name in ("totals", "clicks", "limits")}
    assert {name: (table.num_rows, table.column_names) for name, table in found.items()} == {
        "totals": (0, ["user", "item", "n"]),
        "clicks": (0, ["user", "n", "ts"]),
        "limits": (0, ["key", "value"]),
    }


def test_a_type_from_elsewhere_is_read_through_its_view(jobs: list[TableJob]) -> None:
    job = start(jobs, CounterTable("seen", key="word"))
    job.managers[0].view("seen").add("ada", 2)  # type: ignore[attr-defined]
    job.checkpoint()
    assert read(job, "seen") == [{"word": "ada", "n": 2}]


OLD = ls.KeyedTable("t", key="k bigint", value="n int")
NEW = ls.KeyedTable(
    "t", key="k bigint", value="n bigint", version=2, migrations=[ls.ColumnChanges(1, widen={"n": "bigint"})]
)


def two_versions(jobs: list[TableJob]) -> TableJob:
    job = start(jobs, OLD)
    for n in (1, 2):
        job.managers[0].keyed("t").put(pa.table({"k": [n], "n": pa.array([n], pa.int32())}))
        job.checkpoint()
    job.restart(tables=[NEW])
    job.managers[0].keyed("t").put(pa.table({"k": [2, 3], "n": [2**40, 3]}))
    job.checkpoint()
    return job


def test_rows_of_one_older_version_are_read_as_they_are_stored(jobs: list[TableJob]) -> None:
    job = two_versions(jobs)
    assert ls.read_state(url(job), "job", "op", "t", epoch=2).schema.field("n").type == pa.int32()


@pytest.mark.usefixtures("separate_runs")
def test_rows_of_several_versions_need_the_declared_table(jobs: list[TableJob]) -> None:
    job = two_versions(jobs)
    with pytest.raises(IncompatibleStateError, match="2 files of version 1, 1 files of version 2"):
        read(job, "t")
    expected = [{"k": 1, "n": 1}, {"k": 2, "n": 2**40}, {"k": 3, "n": 3}]
    assert read(job, NEW) == expected
    job.compact(EAGER)
    job.restart()
    job.checkpoint()
    assert read(job, "t") == expected


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("jib", "op", "totals", None), "no such job below .*: jib; found job; .*did you mean job"),
        (("job", "opp", "totals", None), "no such operator: opp; found op; .*did you mean op"),
        (("job", "op", "total", None), "no such table: total; found limits, totals; .*did you mean totals"),
        (("job", "op", "totals", 7), "epoch 7 cannot be opened.*found newest epochs 1"),
    ],
    ids=["job", "operator", "table", "epoch"],
)
def test_what_does_not_exist_is_told_with_what_comes_nearest(
    jobs: list[TableJob], asked: tuple[str, str, str, int | None], told: str
) -> None:
    job = start(jobs, TOTALS, LIMITS)
    job.checkpoint()
    with pytest.raises(NotFoundError, match=told):
        ls.read_state(url(job), *asked)


def test_a_job_without_an_epoch_is_not_an_unknown_job(tmp_path: Path) -> None:
    ls.ParquetBackend(f"file://{tmp_path}").claim("job")
    with pytest.raises(NotFoundError, match="the job has no published epoch"):
        ls.read_state(f"file://{tmp_path}", "job", "op", "t")


def test_options_of_the_store_come_with_its_configuration(jobs: list[TableJob]) -> None:
    job = start(jobs, LIMITS)
    job.checkpoint()
    found = ls.read_state(ls.StoreConfig(url(job), {}), "job", "op", "limits")
    assert found.num_rows == 0


def test_reading_writes_nothing(tmp_path: Path) -> None:
    job = TableJob([TOTALS], url=f"file://{tmp_path}")
    job.managers[0].keyed("totals").put(
        pa.table({"user": ["ann"], "item": pa.array([1], pa.int32()), "n": [1]})
    )
    job.checkpoint()
    job.close()
    before = [(info.path, info.version) for info in open_store(f"file://{tmp_path}").list()]
    assert read(job, "totals") == [{"user": "ann", "item": 1, "n": 1}]
    assert [(info.path, info.version) for info in open_store(f"file://{tmp_path}").list()] == before


def test_a_row_group_that_reaches_into_the_next_piece_is_not_read_again(
    jobs: list[TableJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakestate.storage.spans.MERGED_GAP_BYTES", 0)
    job = start(jobs, ls.KeyedTable("t", key="k bigint", value="n bigint"))
    for group_rows, count in ((500, 5000), (1300, 4000)):
        monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", group_rows)
        keys = np.random.default_rng(count).integers(0, 2**60, count)
        job.managers[0].keyed("t").put(pa.table({"k": keys, "n": keys}))
        job.checkpoint()
    source = StateSource.open(url(job), "job", "op", "t", None)
    counting = count_requests(source.backend)
    assert source.reader().read_all().num_rows == 9000
    assert counting.take().shown() == {"get data file": 26}
