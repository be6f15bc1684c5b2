from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob
from tests.support.jobs.time_key_job import TimeKeyJob, clicks, numbers, rows, scanned, users

from lakestate.errors import IncompatibleStateError
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.table_types import TIME_KEY
from lakestate.protocol.values import Epoch, FileRef, Generation, TimeRange
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.dry_run import dry_run
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.migration.migrations import ArrowMigration, ColumnChanges, Migration
from lakestate.tables.time_key.files import merge_files, swap_in_live_files
from lakestate.tables.time_key.runs import TimeSpan, merge_time_runs, merge_time_slices, rows_within
from lakestate.tables.time_key.table import TimeKeyTable

pytestmark = pytest.mark.usefixtures("separate_runs")

if TYPE_CHECKING:
    pass


def test_an_epoch_without_a_change_writes_nothing(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    before = job.subtasks[0].stored, job.subtasks[0].files
    job.epoch = Epoch(job.epoch - 1)
    job.checkpoint()
    assert (job.subtasks[0].stored, job.subtasks[0].files) == before
    assert job.subtasks[0].bytes_written == 0


def test_a_watermark_that_kills_no_row_leaves_the_metadata_as_it_is() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(("a", 1, 100)))
    job.checkpoint(50)
    before = job.subtasks[0].files
    job.checkpoint(60)
    job.checkpoint(70)
    assert job.subtasks[0].files == before


def test_whole_expired_files_drop_out_without_a_rewrite() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    for time in (5, 30, 6):
        job.insert(rows(("a", time, time), ("b", time + 1, time + 1)))
        job.checkpoint()
    _, middle, _ = job.paths()
    job.checkpoint(18)
    # Not only from the old end: a file that is alive lay between the two.
    assert job.paths() == [middle]
    assert job.subtasks[0].bytes_written == 0
    assert scanned(job) == [30, 31]


def test_rows_are_dead_from_the_end_of_the_epoch_whose_watermark_passed_them() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(("a", 1, 1), ("a", 2, 9), ("a", 3, 10)))
    job.checkpoint()
    assert scanned(job) == [1, 2, 3]
    job.checkpoint(20)
    assert [file.valid_from_us for file in job.files()] == [10]
    state = job.subtasks[0].state
    assert numbers(state.rows_between(None, None)) == [3]
    assert numbers(state.rows_of(users("a"))) == [3]
    assert (scanned(job), state.count(), state.min_time()) == ([3], 1, 10)


def test_rows_that_come_in_dead_are_not_written() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=100)
    job.insert(rows(("a", 1, 89)))
    job.checkpoint()
    assert job.files() == []
    job.insert(rows(("a", 1, 89), ("a", 2, 90)))
    assert scanned(job) == [2]
    job.checkpoint()
    assert [(file.row_count, file.times) for file in job.files()] == [(1, TimeRange(90, 90))]


def test_expired_rows_stay_dead_after_a_restart(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 10), ("a", 2, 20)))
    job.checkpoint()
    job.subtasks[0].state.expire(15)
    job.checkpoint()
    assert job.subtasks[0].files.expired_before_us == 15
    assert [file.valid_from_us for file in job.files()] == [15]
    job.restore()
    assert scanned(job) == [2]
    job.insert(rows(("a", 3, 14), ("a", 4, 15)))
    assert scanned(job) == [2, 4]
    job.subtasks[0].state.expire(12)
    assert scanned(job) == [2, 4]


def test_a_crash_forgets_an_expiry_that_was_not_stored(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 10)))
    job.checkpoint()
    job.subtasks[0].state.expire(15)
    assert scanned(job) == []
    job.restore()
    assert scanned(job) == [1]


def test_dead_rows_stay_dead_when_the_retention_is_made_longer() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(("a", 1, 10), ("a", 2, 50)))
    job.checkpoint(30)
    job.table = clicks(retention="1 hour")
    job.restore()
    assert scanned(job) == [2]


def spread(job: TimeKeyJob) -> tuple[str, str]:
    """A user of the first and one of the last subtask of two."""
    names = [f"user-{number}" for number in range(50)]
    owners = job.owner(rows(*((name, 0, 0) for name in names)))
    return names[owners.index(0)], names[owners.index(1)]


def test_a_replicated_table_beside_it_leaves_each_subtask_its_own_floor() -> None:
    low, high = spread(TimeKeyJob(clicks(), parallelism=2))
    job = TableJob([clicks(), GlobalKeyedTable("settings", key=str, value=int)], parallelism=2)
    job.managers[0].time_key("clicks").expire(40)
    job.managers[1].global_keyed("settings").insert("limit", 7)
    job.checkpoint()
    job.restart()
    first, last = (manager.time_key("clicks") for manager in job.managers)
    first.insert(rows((low, 1, 39), (low, 2, 40)))
    last.insert(rows((high, 3, 39)))
    found = [numbers(state.rows_between(None, None)) for state in (first, last)]
    limits = [manager.global_keyed("settings").get("limit") for manager in job.managers]
    job.close()
    assert (found, limits) == ([[2], [3]], [7, 7])


def test_subtasks_with_different_floors_become_one_without_loss_or_return() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    low, high = spread(job)
    job.insert(rows((low, 1, 10), (low, 2, 50), (high, 3, 10), (high, 4, 50)))
    job.checkpoint()
    job.subtasks[0].state.expire(40)
    job.subtasks[1].state.expire(5)
    job.checkpoint()
    job.restore(parallelism=1)
    only = job.subtasks[0]
    assert only.files.expired_before_us == 5
    assert scanned(job) == [2, 3, 4]
    job.insert(rows((low, 5, 6), (high, 6, 4)))
    assert scanned(job) == [2, 3, 4, 5]
    job.checkpoint()
    job.compact(0)
    job.restore(parallelism=3)
    assert scanned(job) == [2, 3, 4, 5]


def test_a_floor_that_one_part_lacks_is_none_for_the_rest() -> None:
    config = clicks().config
    file = FileRef("a.parquet", 1, 1, 1, Epoch(1), Generation(1), 0, 1, 1, times=TimeRange(0, 100))
    one = TableFiles("clicks", TIME_KEY, (file,), expired_before_us=40)
    other = TableFiles("clicks", TIME_KEY, (replace(file, path="b.parquet"),))
    merged = merge_files(config, [one, other])
    assert merged.expired_before_us is None
    assert [(part.path, part.valid_from_us) for part in merged.files] == [
        ("a.parquet", 40),
        ("b.parquet", None),
    ]


def test_runs_stay_open_when_only_their_floor_moves(opened: list[str]) -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(*(("a", time, time) for time in range(50))))
    job.checkpoint()
    job.restore()
    for watermark in (20, 30, 40):
        assert scanned(job) == list(range(max(0, (job.watermark_us or 0) - 10), 50))
        job.checkpoint(watermark)
        assert scanned(job) == list(range(watermark - 10, 50))
    assert len(opened) == 1


def test_compaction_keeps_all_live_rows_and_drops_the_dead() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    for time in (1, 15, 40):
        job.insert(rows(("a", time, time), ("b", time + 1, time + 30)))
        job.checkpoint(time)
    merge = job.compact(0)
    assert merge is not None
    job.restore()
    assert job.paths() == [merge.merged[0].path]
    assert scanned(job) == [2, 16, 40, 41]


def test_compaction_leaves_nothing_of_files_without_a_live_row() -> None:
    job = TimeKeyJob(clicks(), watermark_us=20)
    for time in (1, 2):
        job.insert(rows(("a", time, time)))
        job.checkpoint()
    job.table = clicks(retention="10 us")
    merge = job.compact(0)
    assert merge == CompactedFiles("clicks", tuple(job.files()), ())


def test_a_merge_is_swapped_in_although_one_of_its_files_has_expired_since() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    for time in (1, 50, 51):
        job.insert(rows(("a", time, time)))
        job.checkpoint()
    merge = job.compact(0)
    job.checkpoint(30)
    assert len(job.files()) == 2
    job.restore()
    assert job.paths() == [merge.merged[0].path]
    assert scanned(job) == [50, 51]


def test_a_merge_does_not_bring_back_what_expired_before_subtasks_were_joined() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    low, high = spread(job)
    for number in (1, 2):
        job.insert(rows((low, number, 10), (low, number + 10, 50), (high, number + 20, 10)))
        job.checkpoint()
    merge = job.compact(0)
    job.subtasks[0].state.expire(40)
    job.checkpoint()
    job.restore(parallelism=1)
    assert merge.merged[0].path in job.paths()
    assert scanned(job) == [11, 12, 21, 22]


def test_a_merge_is_dropped_if_a_file_of_it_was_merged_by_another() -> None:
    file = FileRef("a.parquet", 1, 1, 1, Epoch(1), Generation(1), 0, 1, 1, times=TimeRange(0, 100))
    one, two, other, late = (replace(file, path=f"{name}.parquet") for name in ("1", "2", "3", "4"))
    files = TableFiles("clicks", TIME_KEY, (one, other))
    merge = CompactedFiles("clicks", (one, two), (late,))
    assert swap_in_live_files(files, merge) == files


def test_after_rescaling_a_compacted_half_does_not_bring_back_the_other() -> None:
    job = TimeKeyJob(clicks())
    names = [f"user-{number}" for number in range(40)]
    for _ in range(2):
        job.insert(rows(*((name, number, number) for number, name in enumerate(names))))
        job.checkpoint()
    expected = sorted([*range(40), *range(40)])
    job.restore(parallelism=2)
    job.checkpoint()
    job.compact(0)
    job.restore()
    job.checkpoint()
    assert scanned(job) == expected
    for parallelism in (7, 3, 1):
        job.restore(parallelism)
        job.checkpoint()
        assert scanned(job) == expected


def test_a_merge_of_a_busy_key_is_done_in_small_pieces() -> None:
    layout = clicks().layout
    parts = []
    for begin in (0, 1, 2):
        state = TimeKeyJob(clicks()).subtasks[0].state
        state.insert(rows(*(("busy" if n % 5 else f"user-{n}", n, n % 700) for n in range(begin, 3000, 3))))
        parts.append(merge_time_runs(state._unsorted_runs(), layout))
    span = TimeSpan(first_us=100)
    pieces = list(merge_time_slices(parts, lambda _, piece: rows_within(piece, span), layout, rows_max=100))
    whole = pa.concat_tables([piece.rows for piece in pieces])
    assert max(len(piece) for piece in pieces) <= 200
    assert sorted(numbers(whole)) == [n for n in range(3000) if n % 700 >= 100]
    order = list(zip(whole["__key"].to_pylist(), whole["ts"].cast(pa.int64()).to_pylist(), strict=True))
    assert order == sorted(order)


def by_time(time: str, version: int, *steps: Migration) -> TimeKeyTable:
    value = "ts timestamp not null, seen timestamp not null"
    return TimeKeyTable(
        "clicks", key="user string", value=value, time=time, version=version, migrations=steps
    )


@pytest.mark.parametrize(
    ("newer", "told"),
    [
        pytest.param(
            by_time("seen", 2, ArrowMigration(1, lambda rows: rows)),
            "time column is ts, declared seen:",
            id="another",
        ),
        pytest.param(
            by_time("ts", 2, ColumnChanges(1, rename={"ts": "seen", "seen": "ts"})),
            "time column is ts, declared ts, which was seen:",
            id="swapped",
        ),
        pytest.param(
            by_time(
                "ts",
                3,
                ArrowMigration(1, lambda rows: rows),
                ColumnChanges(2, rename={"ts": "seen", "seen": "ts"}),
            ),
            "time column is ts, declared ts, which was seen:",
            id="swapped in a later step",
        ),
    ],
)
def test_a_migration_that_makes_another_column_the_event_time_is_refused(
    newer: TimeKeyTable, told: str
) -> None:
    job = TableJob([by_time("ts", 1)])
    time, seen = (pa.array([second], pa.timestamp("us", tz="UTC")) for second in (10, 20))
    job.managers[0].time_key("clicks").insert(pa.table({"user": ["a"], "ts": time, "seen": seen}))
    job.checkpoint()
    stored = job.backend.load_checkpoint_metadata("job")
    report = dry_run([newer], stored, "op", job.backend.objects("job"))
    with pytest.raises(IncompatibleStateError, match=told):
        job.restart(tables=[newer])
    job.close()
    assert [problem.reason.startswith(told) for problem in report.problems] == [True]


def test_rows_of_an_older_version_are_migrated_when_read_and_rewritten_by_compaction() -> None:
    job = TimeKeyJob(clicks())
    for time in (1, 2):
        job.insert(rows(("a", time, time)))
        job.checkpoint()
    job.table = TimeKeyTable(
        "clicks",
        key="user string",
        value="number bigint, at timestamp, note string",
        time="at",
        version=2,
        migrations=[ColumnChanges(1, rename={"n": "number", "ts": "at"}, add={"note": ("string", "old")})],
    )
    job.restore()
    expected = [("a", 1, "old"), ("a", 2, "old")]
    assert sorted((row["user"], row["number"], row["note"]) for row in job.rows()) == expected
    merge = job.compact(0)
    assert [file.state_version for file in merge.merged] == [2]
    job.restore()
    found = job.subtasks[0].state.rows_of(users("a"), start=2)
    assert found.column("number").to_pylist() == [2]
