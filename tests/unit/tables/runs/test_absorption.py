"""Small runs are written again together with the rows of an epoch, so that nothing is left to merge."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.protocol.compaction import ABSORBED_BYTES_MAX, absorbed_runs
from lakestate.protocol.values import FileRef

KEYED = ls.KeyedTable("keyed", key="k bigint", value="n bigint")
TIMED = ls.TimeKeyTable("timed", key="k bigint", value="ts timestamp", retention="1 hour")
EPOCHS = 60


@pytest.fixture
def job() -> Iterator[TableJob]:
    job = TableJob([KEYED, TIMED])
    yield job
    job.close()


def files_of(job: TableJob, table: str) -> tuple[FileRef, ...]:
    assert job.epoch is not None
    found = job.backend.load_operator_metadata("job", job.epoch, "op")[0].table(table)
    assert found is not None
    return found.files


def put(job: TableJob, rows: dict[int, int]) -> None:
    job.managers[0].keyed("keyed").put(pa.table({"k": [*rows], "n": [*rows.values()]}))


def insert(job: TableJob, times: dict[int, int]) -> None:
    column = pa.array([*times.values()], pa.timestamp("us", tz="UTC"))
    job.managers[0].time_key("timed").insert(pa.table({"k": [*times], "ts": column}))


def keyed_rows(job: TableJob) -> dict[int, int]:
    return {row["k"]: row["n"] for row in job.managers[0].keyed("keyed").to_pylist()}


@pytest.mark.parametrize(
    ("row_count", "runs", "expected"),
    [
        (10, [], 0),
        (10, [(15, 1)], 1),
        (10, [(16, 1)], 0),
        (10, [(10, 1), (30, 1), (75, 1), (200, 1)], 3),
        (10, [(10, ABSORBED_BYTES_MAX)], 1),
        (10, [(10, ABSORBED_BYTES_MAX + 1), (10, 1)], 0),
    ],
)
def test_runs_up_to_one_and_a_half_times_the_rows_so_far_are_absorbed(
    row_count: int, runs: list[tuple[int, int]], expected: int
) -> None:
    assert absorbed_runs(row_count, runs) == expected


def test_many_small_epochs_leave_few_runs_with_all_rows(job: TableJob) -> None:
    for number in range(EPOCHS):
        put(job, {number: number, number // 2: -number})
        insert(job, {number: number})
        job.checkpoint()
        job.restart()
    expected = {**{number: number for number in range(EPOCHS)}}
    expected |= {number // 2: -number for number in range(EPOCHS)}
    assert keyed_rows(job) == expected
    assert job.managers[0].time_key("timed").count() == EPOCHS
    assert max(len(files_of(job, name)) for name in ("keyed", "timed")) <= 8


def test_removed_keys_do_not_come_back_and_leave_no_trace(job: TableJob) -> None:
    put(job, {1: 1, 2: 2})
    job.checkpoint()
    job.managers[0].keyed("keyed").delete(pa.table({"k": [1, 2]}))
    job.checkpoint()
    assert files_of(job, "keyed") == ()
    job.restart()
    assert keyed_rows(job) == {}


def test_rows_that_have_expired_are_not_written_again(job: TableJob) -> None:
    hour_us = 3_600_000_000
    insert(job, {1: 0, 2: hour_us})
    job.checkpoint(watermark_us=0)
    insert(job, {3: 2 * hour_us, 4: 2 * hour_us})
    job.checkpoint(watermark_us=2 * hour_us)
    [file] = files_of(job, "timed")
    assert file.row_count == 3
    job.restart()
    assert sorted(row["k"] for row in job.managers[0].time_key("timed").to_pylist()) == [2, 3, 4]


def test_deletes_stay_in_front_of_the_rows_that_they_hide(job: TableJob) -> None:
    insert(job, {1: 10, 2: 20})
    job.checkpoint()
    timed = job.managers[0].time_key("timed")
    timed.delete(pa.table({"k": [1]}))
    insert(job, {3: 30})
    job.checkpoint()
    insert(job, {4: 40})
    job.checkpoint()
    job.restart()
    assert sorted(row["k"] for row in job.managers[0].time_key("timed").to_pylist()) == [2, 3, 4]


def test_the_files_of_older_epochs_stay_for_them(job: TableJob) -> None:
    put(job, {1: 1})
    first = job.checkpoint()
    put(job, {1: 2})
    job.checkpoint()
    [manager] = job.opened(first)
    assert manager.keyed("keyed").to_pylist() == [{"k": 1, "n": 1}]


def test_a_run_that_would_have_to_be_fetched_is_left_alone(job: TableJob) -> None:
    put(job, {1: 1})
    job.checkpoint()
    without_cache = ls.TableManager.load(
        ls.TaskInfo("job", "op"), job.tables, job.backend.without_cache(), job.epoch
    )
    without_cache.keyed("keyed").put(pa.table({"k": [2], "n": [2]}))
    done = without_cache.checkpoint(2, 1, None, False)
    job.backend.write_checkpoint_metadata("job", 2, [done])
    job.epoch = done.epoch
    assert len(files_of(job, "keyed")) == 2


def test_a_run_of_an_older_version_is_left_to_compaction(job: TableJob) -> None:
    put(job, {1: 1})
    job.checkpoint()
    widened = ls.KeyedTable(
        "keyed",
        key="k bigint",
        value="n bigint, extra string",
        version=2,
        migrations=[ls.ColumnChanges(1, add={"extra": ("string", "none")})],
    )
    job.restart(tables=[widened, TIMED])
    job.managers[0].keyed("keyed").put(pa.table({"k": [2], "n": [2], "extra": ["x"]}))
    job.checkpoint()
    assert [file.state_version for file in files_of(job, "keyed")] == [2, 1]
