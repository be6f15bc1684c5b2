"""Deleting the rows of a key: at once, for good, and never more than was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import PARTIAL, TableJob
from tests.support.jobs.time_key_job import TimeKeyJob, clicks, numbers, rows, scanned, users

import lakestate as ls
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.table_types import TIME_KEY
from lakestate.protocol.values import Epoch, FileRef, Generation, TimeRange
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.dry_run import dry_run
from lakestate.tables.migration.migrations import ColumnChanges
from lakestate.tables.time_key.deletes import is_deletes
from lakestate.tables.time_key.files import swap_in_live_files
from lakestate.tables.time_key.table import TimeKeyTable

if TYPE_CHECKING:
    from collections.abc import Sequence


def kinds(job: TimeKeyJob) -> list[str]:
    """What the files hold, newest first."""
    return ["deletes" if is_deletes(file) else "rows" for file in job.files()]


def test_rows_of_a_deleted_key_are_gone_at_once(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 1), ("b", 2, 2)))
    job.checkpoint()
    job.insert(rows(("a", 3, 3), ("b", 4, 4)))
    job.delete(users("a", "nobody", "a"))
    job.insert(rows(("a", 5, 5)))
    state = job.subtasks[0].state
    assert numbers(state.rows_between(None, None)) == [2, 4, 5]
    assert numbers(state.rows_of(users("a", "b"))) == [5, 2, 4]
    assert (scanned(job), state.count(), state.min_time()) == ([2, 4, 5], 3, 2)


def test_deletes_are_stored_behind_the_rows_of_their_epoch(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    job.insert(rows(("b", 2, 2)))
    job.delete(users("a", "b"))
    job.insert(rows(("a", 3, 3)))
    job.checkpoint()
    assert kinds(job) == ["rows", "deletes", "rows"]
    assert [(file.row_count, file.removed_count) for file in job.files()] == [(1, 0), (2, 2), (1, 0)]
    for _ in range(2):
        assert scanned(job) == [3]
        job.restore()
        job.insert(rows(("a", 4, 4)))
        assert scanned(job) == [3, 4]
        job.restore()


def test_a_delete_that_hides_nothing_is_not_stored(job: TimeKeyJob) -> None:
    job.delete(users("a"))
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    assert (kinds(job), scanned(job)) == (["rows"], [1])


def test_a_crash_forgets_a_delete_that_was_not_stored(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    job.delete(users("a"))
    assert scanned(job) == []
    job.restore()
    assert scanned(job) == [1]


def test_deletes_go_with_the_last_file_that_they_hide_rows_of() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(("a", 1, 1), ("b", 2, 2)))
    job.checkpoint()
    job.delete(users("a"))
    job.insert(rows(("a", 3, 50)))
    job.checkpoint()
    assert (kinds(job), scanned(job)) == (["rows", "deletes", "rows"], [2, 3])
    job.checkpoint(20)
    assert (kinds(job), scanned(job)) == (["rows"], [3])


def test_a_watermark_that_kills_no_row_leaves_deletes_and_metadata_as_they_are() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(("a", 1, 100), ("b", 2, 100)))
    job.checkpoint()
    job.delete(users("a"))
    job.checkpoint()
    before = job.subtasks[0].files
    for watermark in (50, 60):
        job.checkpoint(watermark)
        assert job.subtasks[0].files == before


def test_deleted_rows_stay_deleted_at_any_parallelism() -> None:
    job = TimeKeyJob(clicks(), parallelism=3)
    names = [f"user-{number}" for number in range(40)]
    job.insert(rows(*((name, number, number) for number, name in enumerate(names))))
    job.checkpoint()
    job.delete(users(*names[::2]))
    job.insert(rows(*((name, 100 + number, number) for number, name in enumerate(names[:4]))))
    job.checkpoint()
    expected = sorted([*range(1, 40, 2), 100, 101, 102, 103])
    for parallelism in (1, 7, 2, 1):
        job.restore(parallelism)
        assert scanned(job) == expected
        job.checkpoint()
        job.compact(0)
    job.restore()
    assert scanned(job) == expected


def test_compaction_drops_deleted_rows_and_deletes_that_reach_the_oldest_file(job: TimeKeyJob) -> None:
    for number in (1, 2):
        job.insert(rows(("a", number, number), ("b", 10 + number, number)))
        job.checkpoint()
    job.delete(users("a"))
    job.insert(rows(("a", 3, 3)))
    job.checkpoint()
    merge = job.compact(0)
    assert [(file.row_count, is_deletes(file)) for file in merge.merged] == [(3, False)]
    job.restore()
    assert (kinds(job), scanned(job)) == (["rows"], [3, 11, 12])


def test_a_merge_of_new_files_keeps_deletes_for_the_older_ones() -> None:
    job = TableJob([clicks()])
    for number in range(40):
        view = job.managers[0].time_key("clicks")
        if number:
            view.delete(users("a"))
        filler = rows(*((f"u{n}", n, n) for n in range(0 if number else 3000)), ("a", number, number))
        view.insert(filler)
        job.checkpoint()
        if number % 3 == 2:
            job.compact(PARTIAL)
            job.restart()
    files = job.managers[0]._files["clicks"].files
    found = job.managers[0].time_key("clicks").rows_of(users("a"))
    job.close()
    assert numbers(found) == [39]
    assert len(files) < 40


def test_a_group_of_rows_and_deletes_is_not_rewritten_as_the_same_two_files(job: TimeKeyJob) -> None:
    job.insert(rows(*(("a", n * 0x9E3779B97F4A7C15 % 2**63, n) for n in range(5000))))
    job.checkpoint()
    job.delete(users("a"))
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    assert kinds(job) == ["rows", "deletes", "rows"]
    policy = CompactionPolicy(files_min=2, files_max=9, size_ratio=1.0, size_floor_bytes=1)
    assert job.compact(0, policy) is None


def _file(name: str, times: TimeRange | None, removed: int = 0) -> FileRef:
    return FileRef(f"{name}.parquet", 1, 1, 1, Epoch(1), Generation(1), 0, 1, 1, None, times, removed)


ROWS_OLD, ROWS_NEW = _file("old", TimeRange(0, 10)), _file("new", TimeRange(50, 60))
DELETES, MERGED = _file("deletes", None, removed=1), _file("merged", TimeRange(50, 60))


@pytest.mark.parametrize(
    ("present", "after"),
    [
        pytest.param((ROWS_NEW, DELETES, ROWS_OLD), (MERGED,), id="all there"),
        pytest.param((ROWS_NEW,), (MERGED,), id="old rows and their deletes expired"),
        pytest.param((ROWS_NEW, ROWS_OLD), (ROWS_NEW, ROWS_OLD), id="the delete never happened here"),
        pytest.param((ROWS_OLD,), (ROWS_OLD,), id="an older epoch"),
    ],
)
def test_a_merge_applies_only_where_its_deletes_happened(
    present: Sequence[FileRef], after: Sequence[FileRef]
) -> None:
    files = TableFiles("clicks", TIME_KEY, tuple(present), expired_before_us=20)
    merge = CompactedFiles("clicks", (ROWS_NEW, DELETES, ROWS_OLD), (MERGED,))
    assert swap_in_live_files(files, merge).files == tuple(after)


def test_keys_of_another_subtask_are_refused() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    names = [f"user-{number}" for number in range(20)]
    foreign = names[job.owner(rows(*((name, 0, 0) for name in names))).index(1)]
    with pytest.raises(InvalidInputError, match="rows of another subtask were put into table clicks"):
        job.subtasks[0].state.delete(users(foreign))


def test_deletes_of_an_older_version_hide_rows_of_renamed_columns() -> None:
    job = TableJob([clicks()])
    view = job.managers[0].time_key("clicks")
    view.insert(rows(("a", 1, 1), ("b", 2, 2)))
    job.checkpoint()
    view.delete(users("a"))
    job.checkpoint()
    newer = TimeKeyTable(
        "clicks",
        key="name string",
        value="n bigint, ts timestamp",
        version=2,
        migrations=[ColumnChanges(1, rename={"user": "name"})],
    )
    manifest = job.backend.load_checkpoint_metadata("job")
    report = dry_run([newer], manifest, "op", job.backend.objects("job"))
    job.restart(tables=[newer])
    found = job.managers[0].time_key("clicks").rows_between(None, None)
    job.compact()
    job.restart()
    compacted = job.managers[0].time_key("clicks").rows_between(None, None)
    job.close()
    assert (report.problems, report.migrated_rows) == ((), 2)
    assert (found["name"].to_pylist(), compacted["name"].to_pylist()) == (["b"], ["b"])


def test_a_job_with_deletes_verifies_and_a_wrong_reference_is_named(job: TimeKeyJob) -> None:
    tables = TableJob([clicks()])
    view = tables.managers[0].time_key("clicks")
    view.insert(rows(("a", 1, 1)))
    tables.checkpoint()
    view.delete(users("a"))
    tables.checkpoint()
    report = ls.verify(tables.backend, "job")
    tables.close()
    assert report.is_clean
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    job.delete(users("a"))
    job.checkpoint()
    deletes, _ = job.files()
    context = job.subtasks[0].context
    job.table.check_file(deletes, context)
    with pytest.raises(ls.CorruptionError, match="other removed rows"):
        job.table.check_file(replace(deletes, removed_count=0), context)


def test_rows_under_a_reference_that_says_deletes_are_refused(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    (file,) = job.files()
    forged = TableFiles("clicks", TIME_KEY, (replace(file, removed_count=1, times=None), file))
    view = job.table.open_view(forged, job.subtasks[0].context)
    with pytest.raises(IncompatibleStateError, match="columns of a data file do not fit"):
        view.rows_of(users("a"))


def test_what_is_deleted_is_not_read_as_state() -> None:
    job = TableJob([clicks()], parallelism=2)
    for index, manager in enumerate(job.managers):
        mine = [name for name in "abcdef" if _owner(name) == index]
        manager.time_key("clicks").insert(rows(*((name, index, 1) for name in mine)))
    job.checkpoint()
    for index, manager in enumerate(job.managers):
        manager.time_key("clicks").delete(users(*(name for name in "abc" if _owner(name) == index)))
    job.checkpoint()
    url = job.backend.objects("job").store.url
    found = [ls.read_state(url, "job", "op", "clicks", epoch) for epoch in (1, 2)]
    job.close()
    assert [sorted(table["user"].to_pylist()) for table in found] == [list("abcdef"), list("def")]


def _owner(name: str) -> int:
    return TimeKeyJob(clicks(), parallelism=2).owner(pa.table({"user": [name]}))[0]
