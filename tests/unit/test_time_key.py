from __future__ import annotations

import decimal
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.support.time_key_job import TimeKeyJob

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.key_ranges import key_range_of
from lakestate.protocol.metadata import TableFiles, TableType
from lakestate.protocol.values import Epoch, FileRef, Generation, TimeRange
from lakestate.storage.run_cache import RunCache
from lakestate.tables import run_set
from lakestate.tables.lifecycle import CompactedFiles
from lakestate.tables.migration import ArrowMigration, ColumnChanges
from lakestate.tables.run import Run
from lakestate.tables.time_key import TimeKeyTable
from lakestate.tables.time_key_files import merged_files, swapped_in_alive
from lakestate.tables.time_key_runs import TimeSpan, joined, joined_slices

if TYPE_CHECKING:
    from pathlib import Path

TS = pa.timestamp("us", tz="UTC")


def clicks(**options: object) -> TimeKeyTable:
    return TimeKeyTable("clicks", key="user string", value="n bigint, ts timestamp", **options)


def rows(*given: tuple[str | None, int, int]) -> pa.Table:
    """Rows of `clicks`: user, n, time."""
    users, numbers, times = zip(*given, strict=True)
    return pa.table({"user": pa.array(users, pa.string()), "n": pa.array(numbers), "ts": pa.array(times, TS)})


def users(*names: str | None) -> pa.Table:
    return pa.table({"user": pa.array(names, pa.string())})


def numbers(table: pa.Table) -> list[int]:
    return table.column("n").to_pylist()


def scanned(job: TimeKeyJob) -> list[int]:
    return sorted(int(row["n"]) for row in job.rows())


@pytest.fixture
def job(tmp_path: Path) -> TimeKeyJob:
    return TimeKeyJob(clicks(), cache=RunCache(tmp_path, 1 << 26))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are opened."""
    paths: list[str] = []
    real = run_set.open_run

    def recorded(file: FileRef, *rest: object) -> Run:
        paths.append(file.path)
        return real(file, *rest)

    monkeypatch.setattr(run_set, "open_run", recorded)
    return paths


def test_rows_between_two_times_come_in_order_of_time(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.by_time.insert(rows(("a", 1, 30), ("b", 2, 10)))
    job.checkpoint()
    state.by_time.insert(rows(("c", 3, 20), ("a", 4, 40)))
    assert numbers(state.by_time.rows_between(10, 40)) == [2, 3, 1]
    assert numbers(state.by_time.rows_between(None, 20)) == [2]
    assert numbers(state.by_time.rows_between(20, None)) == [3, 1, 4]
    assert numbers(state.by_time.rows_between(None, None)) == [2, 3, 1, 4]
    assert numbers(state.by_time.rows_between(40, 10)) == []


def test_rows_of_keys_say_which_key_they_belong_to(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.by_key.insert(rows(("a", 1, 30), ("b", 2, 10), (None, 3, 5)))
    job.checkpoint()
    state.by_key.insert(rows(("a", 4, 20)))
    found = state.by_key.rows_of(users("b", "nobody", "a", None, "a"))
    assert found.select(["__query", "user", "n"]).to_pydict() == {
        "__query": [0, 2, 2, 3, 4, 4],
        "user": ["b", "a", "a", None, "a", "a"],
        "n": [2, 4, 1, 3, 4, 1],
    }


def test_rows_of_keys_can_be_bounded_in_time(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.by_key.insert(rows(*(("a", time, time) for time in range(100))))
    job.checkpoint()
    assert numbers(state.by_key.rows_of(users("a"), 97)) == [97, 98, 99]
    assert numbers(state.by_key.rows_of(users("a"), end=2)) == [0, 1]
    assert numbers(state.by_key.rows_of(users("a", "a"), 50, 52)) == [50, 51, 50, 51]


def test_no_keys_have_no_rows(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.by_key.insert(rows(("a", 1, 1)))
    found = state.by_key.rows_of(users())
    assert found.num_rows == 0
    assert found.schema.names == ["__query", "user", "n", "ts"]


def test_equal_rows_are_all_kept(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 1), ("a", 1, 1)))
    job.checkpoint()
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    job.compact(0)
    job.restore()
    assert scanned(job) == [1, 1, 1]
    assert job.subtasks[0].state.count() == 3


def test_all_views_see_the_same_rows(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.by_time.insert(rows(("a", 1, 1)))
    state.by_key.insert(rows(("a", 2, 2)))
    state.uncached.insert(rows(("a", 3, 3)))
    assert numbers(state.by_time.rows_between(None, None)) == [1, 2, 3]
    assert numbers(state.by_key.rows_of(users("a"))) == [1, 2, 3]
    assert scanned(job) == [1, 2, 3]
    state.uncached.expire(2)
    assert state.by_time.min_time() == state.by_key.min_time() == 2


def test_uncached_rows_are_not_sorted_before_the_checkpoint(
    job: TimeKeyJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = job.subtasks[0].state.uncached
    with monkeypatch.context() as patch:
        patch.setattr("lakestate.tables.time_key_rows.joined", None)
        view.insert(rows(("b", 1, 9), ("a", 2, 5)))
        view.insert(rows(("a", 3, 7)))
        assert scanned(job) == [1, 2, 3]
        assert (view.count(), view.min_time()) == (3, 5)
    job.checkpoint()
    assert scanned(job) == [1, 2, 3]
    assert len(job.files()) == 1


def test_times_are_datetimes_too(job: TimeKeyJob) -> None:
    view = job.subtasks[0].state.by_time
    view.insert(rows(("a", 1, 1_000_000), ("a", 2, 2_000_000)))
    start = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert numbers(view.rows_between(start, None)) == [2]
    view.expire(start)
    assert view.min_time() == 2_000_000


@pytest.mark.parametrize("time", [True, 1.5, "1", 2**63, datetime(2020, 1, 1)])
def test_what_is_no_point_in_time_is_refused(job: TimeKeyJob, time: object) -> None:
    with pytest.raises(InvalidInputError, match="point in time"):
        job.subtasks[0].state.by_time.rows_between(time, None)


def test_times_without_a_zone_take_datetimes_without_a_zone() -> None:
    table = TimeKeyTable("plain", key="user string", value="ts timestamp_ntz")
    job = TimeKeyJob(table)
    view = job.subtasks[0].state.by_time
    times = pa.array([datetime(2020, 1, 1), datetime(2021, 1, 1)], pa.timestamp("us"))
    view.insert(pa.table({"user": ["a", "b"], "ts": times}))
    assert view.rows_between(datetime(2020, 6, 1), None).column("user").to_pylist() == ["b"]
    with pytest.raises(InvalidInputError, match="no time zone"):
        view.expire(datetime(2020, 6, 1, tzinfo=UTC))


def test_a_row_without_an_event_time_is_refused(job: TimeKeyJob) -> None:
    broken = pa.table({"user": ["a", "b"], "n": [1, 2], "ts": pa.array([1, None], TS)})
    with pytest.raises(InvalidInputError, match=r"insert into clicks: null .* ts; found 1 nulls in 2 rows"):
        job.subtasks[0].state.by_time.insert(broken)
    assert scanned(job) == []


def test_rows_of_another_subtask_are_refused() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    batch = rows(("a", 1, 1))
    wrong = 1 - job.owner(batch)[0]
    with pytest.raises(InvalidInputError, match="rows of another subtask"):
        job.subtasks[wrong].state.by_time.insert(batch)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"value": "n bigint"}, "ts; found no such column"),
        ({"value": "ts string"}, "found string"),
        ({"value": "user string, ts timestamp"}, "both key and value"),
        ({"value": "ts timestamp", "time": "at"}, "at; found no such column"),
        ({"value": "ts timestamp", "route_by": ["ts"]}, "routed by key columns"),
    ],
)
def test_a_wrong_declaration_is_refused(declared: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        TimeKeyTable("t", key="user string", **declared)


def test_the_declaration_is_stored_and_read_back() -> None:
    table = TimeKeyTable(
        "t",
        key="user string, item int",
        value="at timestamp_ntz",
        time="at",
        route_by=["user"],
        retention=timedelta(minutes=2),
        version=1,
    )
    assert table.config.table_type is TableType.TIME_KEY
    assert (table.config.time_column, table.config.retention_us) == ("at", 120_000_000)
    assert TimeKeyTable.from_config(table.config).config == table.config
    assert TimeKeyTable.from_config(table.config).layout.schema == table.layout.schema


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
    assert scanned(job) == [30, 31]
    job.checkpoint()
    # Not only from the old end: a file that is alive lay between the two.
    assert job.paths() == [middle]
    assert job.subtasks[0].bytes_written == 0
    assert scanned(job) == [30, 31]


def test_rows_are_dead_from_the_start_of_the_epoch_whose_watermark_passed_them() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(("a", 1, 1), ("a", 2, 9), ("a", 3, 10)))
    job.checkpoint(20)
    state = job.subtasks[0].state
    assert numbers(state.by_time.rows_between(None, None)) == [3]
    assert numbers(state.by_key.rows_of(users("a"))) == [3]
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
    job.subtasks[0].state.by_time.expire(15)
    job.checkpoint()
    assert job.subtasks[0].files.expired_before_us == 15
    assert [file.valid_from_us for file in job.files()] == [15]
    job.restore()
    assert scanned(job) == [2]
    job.insert(rows(("a", 3, 14), ("a", 4, 15)))
    assert scanned(job) == [2, 4]
    job.subtasks[0].state.by_time.expire(12)
    assert scanned(job) == [2, 4]


def test_a_crash_forgets_an_expiry_that_was_not_stored(job: TimeKeyJob) -> None:
    job.insert(rows(("a", 1, 10)))
    job.checkpoint()
    job.subtasks[0].state.by_time.expire(15)
    assert scanned(job) == []
    job.restore()
    assert scanned(job) == [1]


def test_dead_rows_stay_dead_when_the_retention_is_made_longer() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(("a", 1, 10), ("a", 2, 50)))
    job.checkpoint(30)
    job.checkpoint()
    job.table = clicks(retention="1 hour")
    job.restore()
    assert scanned(job) == [2]


def spread(job: TimeKeyJob) -> tuple[str, str]:
    """A user of the first and one of the last subtask of two."""
    names = [f"user-{number}" for number in range(50)]
    owners = job.owner(rows(*((name, 0, 0) for name in names)))
    return names[owners.index(0)], names[owners.index(1)]


def test_subtasks_with_different_floors_become_one_without_loss_or_return() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    low, high = spread(job)
    job.insert(rows((low, 1, 10), (low, 2, 50), (high, 3, 10), (high, 4, 50)))
    job.checkpoint()
    job.subtasks[0].state.by_time.expire(40)
    job.subtasks[1].state.by_time.expire(5)
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
    one = TableFiles("clicks", TableType.TIME_KEY, (file,), expired_before_us=40)
    other = TableFiles("clicks", TableType.TIME_KEY, (replace(file, path="b.parquet"),))
    merged = merged_files(config, [one, other])
    assert merged.expired_before_us is None
    assert [(part.path, part.valid_from_us) for part in merged.files] == [
        ("a.parquet", 40),
        ("b.parquet", None),
    ]


def test_files_outside_the_asked_time_are_not_opened(tmp_path: Path, opened: list[str]) -> None:
    job = TimeKeyJob(clicks(), cache=RunCache(tmp_path, 1 << 26))
    for time in (10, 20, 30):
        job.insert(rows(("a", time, time), ("b", time + 5, time + 5)))
        job.checkpoint()
    job.restore()
    _, middle, _ = job.paths()
    view = job.subtasks[0].state
    assert numbers(view.by_time.rows_between(17, 30)) == [20, 25]
    assert numbers(view.by_key.rows_of(users("a"), 16, 26)) == [20]
    assert opened == [middle]
    assert (view.count(), view.min_time()) == (6, 10)
    assert opened == [middle]


def test_files_without_the_asked_keys_are_not_opened(opened: list[str]) -> None:
    job = TimeKeyJob(clicks())
    for name in ("a", "b"):
        job.insert(rows((name, 1, 1)))
        job.checkpoint()
    job.restore()
    assert numbers(job.subtasks[0].state.by_key.rows_of(users("a"))) == [1]
    assert opened == [job.paths()[1]]


def test_runs_stay_open_when_only_their_floor_moves(opened: list[str]) -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    job.insert(rows(*(("a", time, time) for time in range(50))))
    job.checkpoint()
    job.restore()
    for watermark in (20, 30, 40):
        job.checkpoint(watermark)
        assert scanned(job) == list(range(watermark - 10, 50))
    assert len(opened) == 1


@pytest.mark.parametrize("route_by", [None, ["user"]])
def test_colliding_keys_are_told_apart(route_by: list[str] | None) -> None:
    table = TimeKeyTable(
        "t",
        key="user string, item int",
        value="n bigint, ts timestamp",
        route_by=route_by,
        _hash=lambda columns: np.zeros(len(columns[0]), dtype=np.uint64),
    )
    job = TimeKeyJob(table)
    keys = [("a", 1), ("a", 2), (None, 1), ("a", None), (None, None)]
    for start in (0, 10):
        job.insert(
            pa.table(
                {
                    "user": [user for user, _ in keys],
                    "item": pa.array([item for _, item in keys], pa.int32()),
                    "n": list(range(start, start + 5)),
                    "ts": pa.array([9, 3, 7, 1, 5], TS),
                }
            )
        )
        job.checkpoint()
    asked = pa.table({"user": [None, "a", "z"], "item": pa.array([None, 2, 2], pa.int32())})
    found = job.subtasks[0].state.by_key.rows_of(asked)
    assert sorted(zip(found["__query"].to_pylist(), numbers(found), strict=True)) == [
        (0, 4),
        (0, 14),
        (1, 1),
        (1, 11),
    ]


def test_a_key_among_many_that_share_its_route_is_found_without_reading_the_others() -> None:
    table = TimeKeyTable("t", key="user string, item int", value="n bigint, ts timestamp", route_by=["user"])
    job = TimeKeyJob(table)
    count = 20_000
    job.insert(
        pa.table(
            {
                "user": ["busy"] * count,
                "item": pa.array(np.arange(count) // 4, pa.int32()),
                "n": np.arange(count),
                "ts": pa.array(np.arange(count), TS),
            }
        )
    )
    job.checkpoint()
    asked = pa.table({"user": ["busy"] * 2, "item": pa.array([4999, 7], pa.int32())})
    found = job.subtasks[0].state.by_key.rows_of(asked, start=29)
    assert numbers(found) == [19996, 19997, 19998, 19999, 29, 30, 31]


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
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    for time in (1, 2):
        job.insert(rows(("a", time, time)))
        job.checkpoint()
    job.checkpoint(20)
    merge = job.compact(0)
    assert merge == CompactedFiles("clicks", tuple(job.files()), (), merge.bytes_read, 0)


def test_a_merge_is_swapped_in_although_one_of_its_files_has_died_since() -> None:
    job = TimeKeyJob(clicks(retention="10 us"), watermark_us=0)
    for time in (1, 50, 51):
        job.insert(rows(("a", time, time)))
        job.checkpoint()
    merge = job.compact(0)
    job.checkpoint(30)
    job.checkpoint()
    assert len(job.files()) == 2
    job.restore()
    assert job.paths() == [merge.merged[0].path]
    assert scanned(job) == [50, 51]


def test_a_merge_does_not_bring_back_what_died_before_subtasks_were_joined() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    low, high = spread(job)
    for number in (1, 2):
        job.insert(rows((low, number, 10), (low, number + 10, 50), (high, number + 20, 10)))
        job.checkpoint()
    merge = job.compact(0)
    job.subtasks[0].state.by_time.expire(40)
    job.checkpoint()
    job.restore(parallelism=1)
    assert merge.merged[0].path in job.paths()
    assert scanned(job) == [11, 12, 21, 22]


def test_a_merge_is_dropped_if_a_file_of_it_was_merged_by_another() -> None:
    file = FileRef("a.parquet", 1, 1, 1, Epoch(1), Generation(1), 0, 1, 1, times=TimeRange(0, 100))
    one, two, other, late = (replace(file, path=f"{name}.parquet") for name in ("1", "2", "3", "4"))
    files = TableFiles("clicks", TableType.TIME_KEY, (one, other))
    merge = CompactedFiles("clicks", (one, two), (late,), 2, 1)
    assert swapped_in_alive(files, merge) == files


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
        state.by_time.insert(
            rows(*(("busy" if n % 5 else f"user-{n}", n, n % 700) for n in range(begin, 3000, 3)))
        )
        parts.append((joined(state._unsorted(), layout), TimeSpan(first_us=100)))
    pieces = list(joined_slices(parts, layout, rows_max=100))
    whole = pa.concat_tables([piece.rows for piece in pieces])
    assert max(len(piece) for piece in pieces) <= 200
    assert sorted(numbers(whole)) == [n for n in range(3000) if n % 700 >= 100]
    order = list(zip(whole["__key"].to_pylist(), whole["ts"].cast(pa.int64()).to_pylist(), strict=True))
    assert order == sorted(order)


def test_every_arrow_type_comes_back_as_it_was(tmp_path: Path) -> None:
    value = (
        "ts timestamp, flag boolean, tiny tinyint, small smallint, whole int, big bigint, half float, "
        "full double, money decimal(10,2), text string, raw binary, day date, plain timestamp_ntz, "
        "list array<string>, pair struct<a:int,b:string>, lookup map<string,int>"
    )
    table = TimeKeyTable("types", key="id bigint", value=value)
    full = {
        "id": 1,
        "ts": datetime(2024, 2, 29, tzinfo=UTC),
        "flag": True,
        "tiny": -128,
        "small": 32767,
        "whole": -(2**31),
        "big": 2**63 - 1,
        "half": 0.5,
        "full": -0.0,
        "money": decimal.Decimal("-12345678.90"),
        "text": "zoë 🦉",
        "raw": b"\x00\xff",
        "day": date(1969, 12, 31),
        "plain": datetime(1, 1, 1, 0, 0, 0, 1),
        "list": ["", None],
        "pair": {"a": None, "b": ""},
        "lookup": [("k", 1), ("l", None)],
    }
    empty = dict.fromkeys(full) | {"id": None, "ts": datetime(2024, 3, 1, tzinfo=UTC)}
    given = pa.Table.from_pylist([full, empty], schema=table.layout.row_schema)
    job = TimeKeyJob(table, cache=RunCache(tmp_path, 1 << 26))
    job.insert(given)
    job.checkpoint()
    job.restore()
    found = job.subtasks[0].state.by_time.rows_between(None, None)
    assert found.to_pylist() == [full, empty]
    assert found.schema.types == given.schema.types
    assert job.subtasks[0].state.by_key.rows_of(pa.table({"id": [1]})).drop_columns(
        "__query"
    ).to_pylist() == [full]


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
    found = job.subtasks[0].state.by_key.rows_of(users("a"), start=2)
    assert found.column("number").to_pylist() == [2]


def test_a_migration_that_changes_event_times_is_refused() -> None:
    def later(table: pa.Table) -> pa.Table:
        moved = pa.array([time.value + 1 for time in table["ts"]], TS)
        return table.set_column(table.schema.get_field_index("ts"), "ts", moved)

    job = TimeKeyJob(clicks())
    job.insert(rows(("a", 1, 1)))
    job.checkpoint()
    job.table = clicks(version=2, migrations=[ArrowMigration(1, later)])
    job.restore()
    with pytest.raises(IncompatibleStateError, match="other times"):
        job.rows()


def test_many_small_batches_of_an_epoch_are_searched_as_few_runs(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    for number in range(64):
        state.by_key.insert(rows(("a", number, number)))
        assert numbers(state.by_key.rows_of(users("a"), start=number)) == [number]
    assert len(state._sorted) < 8
    assert numbers(state.by_time.rows_between(None, None)) == list(range(64))


def test_the_key_range_of_a_reference_decides_over_its_rows() -> None:
    job = TimeKeyJob(clicks())
    job.insert(rows(*((f"user-{number}", number, number) for number in range(30))))
    job.checkpoint()
    job.restore(parallelism=4)
    assert [file.valid_keys for file in job.files()] == [key_range_of(index, 4) for index in range(4)]
    assert len(set(job.paths())) == 1
    assert sum(subtask.state.count() for subtask in job.subtasks) == 30
