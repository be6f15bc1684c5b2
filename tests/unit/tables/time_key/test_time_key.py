from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.time_key_job import TS, TimeKeyJob, clicks, numbers, rows, scanned, users

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.key_ranges import key_range_of
from lakestate.protocol.table_types import TIME_KEY
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.migration.migrations import ArrowMigration
from lakestate.tables.time_key.table import TimeKeyTable

pytestmark = pytest.mark.usefixtures("separate_runs")

if TYPE_CHECKING:
    from pathlib import Path


def test_rows_between_two_times_come_in_order_of_time(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.insert(rows(("a", 1, 30), ("b", 2, 10)))
    job.checkpoint()
    state.insert(rows(("c", 3, 20), ("a", 4, 40)))
    assert numbers(state.rows_between(10, 40)) == [2, 3, 1]
    assert numbers(state.rows_between(None, 20)) == [2]
    assert numbers(state.rows_between(20, None)) == [3, 1, 4]
    assert numbers(state.rows_between(None, None)) == [2, 3, 1, 4]
    assert numbers(state.rows_between(40, 10)) == []


def test_rows_of_keys_say_which_key_they_belong_to(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.insert(rows(("a", 1, 30), ("b", 2, 10), (None, 3, 5)))
    job.checkpoint()
    state.insert(rows(("a", 4, 20)))
    found = state.rows_of(users("b", "nobody", "a", None, "a"))
    assert found.select(["__query", "user", "n"]).to_pydict() == {
        "__query": [0, 2, 2, 3, 4, 4],
        "user": ["b", "a", "a", None, "a", "a"],
        "n": [2, 4, 1, 3, 4, 1],
    }


def test_rows_of_keys_can_be_bounded_in_time(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.insert(rows(*(("a", time, time) for time in range(100))))
    job.checkpoint()
    assert numbers(state.rows_of(users("a"), 97)) == [97, 98, 99]
    assert numbers(state.rows_of(users("a"), end=2)) == [0, 1]
    assert numbers(state.rows_of(users("a", "a"), 50, 52)) == [50, 51, 50, 51]


def test_no_keys_have_no_rows(job: TimeKeyJob) -> None:
    state = job.subtasks[0].state
    state.insert(rows(("a", 1, 1)))
    found = state.rows_of(users())
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
    state.insert(rows(("a", 1, 1)))
    state.insert(rows(("a", 2, 2)))
    state.insert(rows(("a", 3, 3)))
    assert numbers(state.rows_between(None, None)) == [1, 2, 3]
    assert numbers(state.rows_of(users("a"))) == [1, 2, 3]
    assert scanned(job) == [1, 2, 3]
    state.expire(2)
    assert state.min_time() == state.min_time() == 2


def test_uncached_rows_are_not_sorted_before_the_checkpoint(
    job: TimeKeyJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = job.subtasks[0].state
    with monkeypatch.context() as patch:
        patch.setattr("lakestate.tables.time_key.view.merge_time_runs", None)
        view.insert(rows(("b", 1, 9), ("a", 2, 5)))
        view.insert(rows(("a", 3, 7)))
        assert scanned(job) == [1, 2, 3]
        assert (view.count(), view.min_time()) == (3, 5)
    job.checkpoint()
    assert scanned(job) == [1, 2, 3]
    assert len(job.files()) == 1


def test_times_are_datetimes_too(job: TimeKeyJob) -> None:
    view = job.subtasks[0].state
    view.insert(rows(("a", 1, 1_000_000), ("a", 2, 2_000_000)))
    start = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert numbers(view.rows_between(start, None)) == [2]
    view.expire(start)
    assert view.min_time() == 2_000_000


@pytest.mark.parametrize("time", [True, 1.5, "1", 2**63, datetime(2020, 1, 1)])
def test_what_is_not_a_point_in_time_is_refused(job: TimeKeyJob, time: object) -> None:
    with pytest.raises(InvalidInputError, match="point in time"):
        job.subtasks[0].state.rows_between(time, None)


def test_times_without_a_zone_take_datetimes_without_a_zone() -> None:
    table = TimeKeyTable("plain", key="user string", value="ts timestamp_ntz")
    job = TimeKeyJob(table)
    view = job.subtasks[0].state
    times = pa.array([datetime(2020, 1, 1), datetime(2021, 1, 1)], pa.timestamp("us"))
    view.insert(pa.table({"user": ["a", "b"], "ts": times}))
    assert view.rows_between(datetime(2020, 6, 1), None).column("user").to_pylist() == ["b"]
    with pytest.raises(InvalidInputError, match="no time zone"):
        view.expire(datetime(2020, 6, 1, tzinfo=UTC))


def test_a_row_without_an_event_time_is_refused(job: TimeKeyJob) -> None:
    broken = pa.table({"user": ["a", "b"], "n": [1, 2], "ts": pa.array([1, None], TS)})
    with pytest.raises(
        InvalidInputError,
        match=r"insert into clicks: a required column has no value: ts; found 1 nulls in 2 rows",
    ):
        job.subtasks[0].state.insert(broken)
    assert scanned(job) == []


def test_rows_of_another_subtask_are_refused() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    batch = rows(("a", 1, 1))
    wrong = 1 - job.owner(batch)[0]
    with pytest.raises(InvalidInputError, match="rows of another subtask"):
        job.subtasks[wrong].state.insert(batch)


def test_rows_of_keys_of_another_subtask_are_not_looked_for() -> None:
    job = TimeKeyJob(clicks(), parallelism=2)
    batch = rows(("a", 1, 1))
    mine = job.owner(batch)[0]
    job.subtasks[mine].state.insert(batch)
    keys = batch.select(["user"])
    assert job.subtasks[mine].state.rows_of(keys).num_rows == 1
    with pytest.raises(InvalidInputError, match="keys of another subtask were looked up in table clicks"):
        job.subtasks[1 - mine].state.rows_of(keys)
    assert job.subtasks[1 - mine].state.rows_of(keys.slice(0, 0)).num_rows == 0


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
    assert table.config.table_type is TIME_KEY
    assert (table.config.time_column, table.config.retention_us) == ("at", 120_000_000)
    assert TimeKeyTable.from_config(table.config).config == table.config
    assert TimeKeyTable.from_config(table.config).layout.schema == table.layout.schema


def test_files_outside_the_asked_time_are_not_opened(tmp_path: Path, opened: list[str]) -> None:
    job = TimeKeyJob(clicks(), cache=RunCache(tmp_path, 1 << 26))
    for time in (10, 20, 30):
        job.insert(rows(("a", time, time), ("b", time + 5, time + 5)))
        job.checkpoint()
    job.restore()
    _, middle, _ = job.paths()
    view = job.subtasks[0].state
    assert numbers(view.rows_between(17, 30)) == [20, 25]
    assert numbers(view.rows_of(users("a"), 16, 26)) == [20]
    assert opened == [middle]
    assert (view.count(), view.min_time()) == (6, 10)
    assert opened == [middle]


def test_files_without_the_asked_keys_are_not_opened(opened: list[str]) -> None:
    job = TimeKeyJob(clicks())
    for name in ("a", "b"):
        job.insert(rows((name, 1, 1)))
        job.checkpoint()
    job.restore()
    assert numbers(job.subtasks[0].state.rows_of(users("a"))) == [1]
    assert opened == [job.paths()[1]]


@pytest.mark.parametrize("route_by", [None, ["user"]])
def test_colliding_keys_are_distinguished(route_by: list[str] | None) -> None:
    table = TimeKeyTable(
        "t",
        key="user string, item int",
        value="n bigint, ts timestamp",
        route_by=route_by,
    )
    table._hash = lambda columns: np.zeros(len(columns[0]), dtype=np.uint64)
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
    found = job.subtasks[0].state.rows_of(asked)
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
    found = job.subtasks[0].state.rows_of(asked, start=29)
    assert numbers(found) == [19996, 19997, 19998, 19999, 29, 30, 31]


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
    found = job.subtasks[0].state.rows_between(None, None)
    assert found.to_pylist() == [full, empty]
    assert found.schema.types == given.schema.types
    assert job.subtasks[0].state.rows_of(pa.table({"id": [1]})).drop_columns("__query").to_pylist() == [full]


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
        state.insert(rows(("a", number, number)))
        assert numbers(state.rows_of(users("a"), start=number)) == [number]
    assert len(state._sorted) < 8
    assert numbers(state.rows_between(None, None)) == list(range(64))


def test_the_key_range_of_a_reference_decides_over_its_rows() -> None:
    job = TimeKeyJob(clicks())
    job.insert(rows(*((f"user-{number}", number, number) for number in range(30))))
    job.checkpoint()
    job.restore(parallelism=4)
    assert [file.valid_keys for file in job.files()] == [key_range_of(index, 4) for index in range(4)]
    assert len(set(job.paths())) == 1
    assert sum(subtask.state.count() for subtask in job.subtasks) == 30
