"""`KeyedTable`: what it holds, what it refuses, what it writes."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

from lakestate.errors import IncompatibleStateError, InvalidInputError, NotFoundError
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.keyed.table import KeyedTable, Ttl
from lakestate.tables.keyed.view import KeyedView

UTC = dt.UTC
EVERY_VALUE: dict[str, list[object]] = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "smallint": [-32768, 32767, None],
    "int": [-(2**31), 2**31 - 1, None],
    "bigint": [-(2**63), 2**63 - 1, None],
    "float": [0.5, -0.0, math.inf],
    "double": [1e308, -0.0, -math.inf],
    "decimal(38,10)": [
        decimal.Decimal("-1234567890123456789012345678.0123456789"),
        decimal.Decimal("0E-10"),
        None,
    ],
    "string": ["", "añ\u2028b😀", None],
    "binary": [b"", b"\x00\xff", None],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "timestamp": [dt.datetime(1960, 1, 1, tzinfo=UTC), dt.datetime(2100, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None],
    "timestamp_ntz": [dt.datetime(1960, 1, 1), dt.datetime(2100, 1, 1, 0, 0, 0, 1), None],
    "struct<a:int,b:struct<c:string>>": [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}, None],
    "array<string>": [["a", None], [], None],
    "map<string,int>": [[("k", 1), ("l", None)], [], None],
}
PLAIN = [name for name in EVERY_VALUE if "<" not in name]


@pytest.fixture
def jobs() -> Iterator[list[TableJob]]:
    opened: list[TableJob] = []
    yield opened
    for job in opened:
        job.close()


def start(jobs: list[TableJob], table: KeyedTable) -> TableJob:
    jobs.append(TableJob([table]))
    return jobs[-1]


def view(job: TableJob) -> KeyedView:
    return job.managers[0].keyed("t")


@pytest.mark.parametrize("ddl", EVERY_VALUE)
def test_a_value_of_every_type_comes_back_from_storage(ddl: str, jobs: list[TableJob]) -> None:
    table = KeyedTable("t", key="k bigint", value=f"v {ddl}")
    column = pa.array(EVERY_VALUE[ddl], table.layout.value_schema.types[0])
    job = start(jobs, table)
    view(job).put(pa.table({"k": range(len(column)), "v": column}))
    job.checkpoint()
    job.restart()
    assert view(job).get(pa.table({"k": range(len(column))})).column(0).equals(column)


@pytest.mark.parametrize("ddl", PLAIN)
def test_a_key_of_every_plain_type_is_found_again(ddl: str, jobs: list[TableJob]) -> None:
    table = KeyedTable("t", key=f"k {ddl}", value="n bigint")
    keys = pa.array(EVERY_VALUE[ddl], table.layout.key_fields[0].type)
    job = start(jobs, table)
    view(job).put(pa.table({"k": keys, "n": range(len(keys))}))
    job.checkpoint()
    job.restart()
    assert view(job).get(pa.table({"k": keys})).column(0).to_pylist() == list(range(len(keys)))


def test_float_keys_are_grouped_as_spark_groups_them(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k double", value="n bigint"))
    view(job).put(pa.table({"k": [math.nan, 0.0], "n": [1, 2]}))
    job.checkpoint()
    job.restart()
    found = view(job).get(pa.table({"k": [-math.nan, -0.0]}))
    assert found.column(0).to_pylist() == [1, 2]


def test_a_nan_and_a_negative_zero_come_back_bit_for_bit_as_values(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k int", value="v double"))
    view(job).put(pa.table({"k": pa.array([1, 2], pa.int32()), "v": [math.nan, -0.0]}))
    job.checkpoint()
    job.restart()
    found = view(job).get(pa.table({"k": pa.array([1, 2], pa.int32())})).column(0).to_pylist()
    assert math.isnan(found[0])
    assert math.copysign(1, found[1]) == -1


def test_the_last_of_several_rows_with_one_key_stays(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    view(job).put(pa.table({"k": [1, 2, 1, 1], "n": [10, 20, 11, 12]}))
    assert view(job).get(pa.table({"k": [1, 2, 3]})).to_pydict() == {"n": [12, 20, None]}


def test_an_answer_is_aligned_with_its_question(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    view(job).put(pa.table({"k": range(1000), "n": range(1000)}))
    job.checkpoint()
    asked = np.random.default_rng(7).integers(0, 2000, 5000)
    answer = view(job).get(pa.table({"k": asked})).column(0).to_pylist()
    assert answer == [int(key) if key < 1000 else None for key in asked]


def test_no_rows_are_no_problem(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    nothing = pa.table({"k": pa.array([], pa.int64()), "n": pa.array([], pa.int64())})
    view(job).put(nothing)
    view(job).delete(nothing.select(["k"]))
    assert view(job).get(nothing.select(["k"])).num_rows == 0
    assert list(view(job).scan()) == []


def test_an_epoch_without_a_change_writes_nothing_and_refers_to_the_same_metadata(
    jobs: list[TableJob],
) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    view(job).put(pa.table({"k": [1], "n": [1]}))
    first = job.backend.load_checkpoint_metadata("job", job.checkpoint())
    job.restart()
    second = job.backend.load_checkpoint_metadata("job", job.checkpoint())
    assert second.operators[0].subtasks[0].metadata == first.operators[0].subtasks[0].metadata
    assert second.operators[0].subtasks[0].summary.bytes_written == 0


def test_one_percent_of_changed_keys_writes_at_most_two_percent_of_the_bytes(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint, x double"))
    rows = pa.table({"k": range(500_000), "n": range(500_000), "x": np.random.default_rng(1).random(500_000)})
    view(job).put(rows)
    whole = job.backend.load_checkpoint_metadata("job", job.checkpoint()).summary.bytes_written
    view(job).put(rows.take(pa.array(range(0, 500_000, 100))))
    changed = job.backend.load_checkpoint_metadata("job", job.checkpoint()).summary.bytes_written
    assert changed <= 0.02 * whole + 4096


def test_rows_expire_by_processing_time(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint", ttl="1 hour"))
    view(job).put(pa.table({"k": [1], "n": [1]}))
    job.checkpoint()
    in_time, too_late = (_opened_at(job, minutes) for minutes in (30, 90))
    asked = pa.table({"k": [1]})
    assert in_time.get(asked).column(0).to_pylist() == [1]
    assert too_late.get(asked).column(0).to_pylist() == [None]
    assert too_late.count() == 0


def test_rows_expire_by_event_time_behind_the_watermark(jobs: list[TableJob]) -> None:
    table = KeyedTable("t", key="k bigint", value="seen timestamp", ttl=Ttl("1 hour", column="seen"))
    job = start(jobs, table)
    hour = 3_600_000_000
    seen = pa.array([0, 2 * hour], pa.timestamp("us", tz="UTC"))
    view(job).put(pa.table({"k": [1, 2], "seen": seen}))
    job.checkpoint(watermark_us=2 * hour)
    job.restart()
    assert view(job).contains(pa.table({"k": [1, 2]})).to_pylist() == [False, True]


def test_an_expired_newest_row_does_not_bring_an_older_one_back(jobs: list[TableJob]) -> None:
    table = KeyedTable("t", key="k bigint", value="seen timestamp", ttl=Ttl("1 hour", column="seen"))
    job = start(jobs, table)
    hour = 3_600_000_000
    for seen in (10 * hour, 0):
        view(job).put(pa.table({"k": [1], "seen": pa.array([seen], pa.timestamp("us", tz="UTC"))}))
        job.checkpoint(watermark_us=5 * hour)
    for _ in range(3):
        assert view(job).contains(pa.table({"k": [1]})).to_pylist() == [False]
        job.checkpoint(watermark_us=5 * hour)
        job.compact()
        job.restart()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "k array<int>", "value": "n int"}, "plain type"),
        ({"key": "k int", "value": "k int"}, "both key and value"),
        ({"key": "k int", "value": "n int", "route_by": ["n"]}, "routed by key columns"),
        ({"key": "k int", "value": "n int", "ttl": Ttl("1 hour", column="n")}, "timestamp"),
        ({"key": "k int", "value": "n int", "ttl": "soon"}, "not a duration"),
        ({"key": "k int", "value": ""}, "columns"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        _ = KeyedTable("t", **arguments).config  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        ({"n": [1]}, "k"),
        ({"k": [1]}, "n"),
        ({"k": ["x"], "n": [1]}, "k"),
        ({"k": [1], "n": [1.5]}, "n"),
        ({"k": [1], "n": [None]}, "n"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_column(
    rows: dict[str, list[object]], column: str, jobs: list[TableJob]
) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint not null"))
    with pytest.raises(InvalidInputError, match=f": {column};"):
        view(job).put(pa.table(rows))
    assert view(job).count() == 0


def test_rows_of_another_subtask_are_refused(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    job.restart(parallelism=2)
    with pytest.raises(InvalidInputError, match="another subtask"):
        view(job).put(pa.table({"k": range(100), "n": range(100)}))


def test_keys_of_another_subtask_are_not_looked_for(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    view(job).put(pa.table({"k": [*range(100), None], "n": range(101)}))
    job.checkpoint()
    job.restart(parallelism=4)
    for manager in job.managers:
        mine = manager.keyed("t")
        for ask in (mine.get, mine.contains):
            with pytest.raises(InvalidInputError, match="keys of another subtask were looked up in table t"):
                ask(pa.table({"k": range(100)}))
            assert len(ask(pa.table({"k": pa.array([], pa.int64())}))) == 0
        own = pa.Table.from_batches(mine.scan())
        assert mine.get(own)["n"].to_pylist() == own["n"].to_pylist()
    # Null is a key like any other: one subtask has it.
    found = [pa.Table.from_batches(manager.keyed("t").scan())["k"].null_count for manager in job.managers]
    assert sum(found) == 1


def test_an_unknown_table_and_a_table_of_another_kind_are_named(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    with pytest.raises(NotFoundError, match="totals; found t"):
        job.managers[0].keyed("totals")
    with pytest.raises(InvalidInputError, match="found KeyedView; expected GlobalKeyedView"):
        job.managers[0].global_keyed("t")


@pytest.mark.parametrize(
    ("again", "reason"),
    [
        (KeyedTable("t", key="k string", value="n bigint"), "key is"),
        (KeyedTable("t", key="k bigint", value="n double"), "raise the state version"),
        (KeyedTable("t", key="k bigint", value="n double", version=2), "no migration"),
        (GlobalKeyedTable("t", key=int, value=int), "stored as keyed"),
        (KeyedTable("u", key="k bigint", value="n bigint"), "no longer declared"),
    ],
)
def test_stored_state_that_does_not_fit_is_refused_before_anything_is_read(
    again: KeyedTable, reason: str, jobs: list[TableJob]
) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    view(job).put(pa.table({"k": [1], "n": [1]}))
    job.checkpoint()
    with pytest.raises(IncompatibleStateError, match=reason):
        job.restart(tables=[again])


def test_state_of_a_newer_version_is_refused(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint", version=3))
    job.checkpoint()
    with pytest.raises(IncompatibleStateError, match="newer than the declared 1"):
        job.restart(tables=[KeyedTable("t", key="k bigint", value="n bigint")])


def test_many_keys_under_one_routing_key_are_found_in_logarithmic_time(jobs: list[TableJob]) -> None:
    table = KeyedTable("t", key="user string, item bigint", value="n bigint", route_by=["user"])
    job = start(jobs, table)
    count = 300_000
    rows = pa.table({"user": ["u"] * count, "item": range(count), "n": range(count)})
    view(job).put(rows)
    job.checkpoint()
    asked = rows.select(["user", "item"]).slice(1000, 50_000)
    assert view(job).get(asked).column(0).equals(rows.column("n").combine_chunks().slice(1000, 50_000))


def test_checkpointing_continues_after_a_failed_upload(
    jobs: list[TableJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    view(job).put(pa.table({"k": [1], "n": [1]}))
    with monkeypatch.context() as patched:
        patched.setattr("lakestate.tables.runs.checkpointer.write_run", _fail)
        with pytest.raises(OSError, match="no route"):
            job.checkpoint()
    job.checkpoint()
    job.restart()
    assert view(job).get(pa.table({"k": [1]})).column(0).to_pylist() == [1]


def test_the_cache_is_not_needed_to_restore(jobs: list[TableJob], tmp_path: Path) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    view(job).put(pa.table({"k": range(10), "n": range(10)}))
    job.checkpoint()
    job.backend._cache_dir = tmp_path / "another-host"
    del job.backend.cache
    job.restart()
    assert view(job).count() == 10


def _fail(*_: object) -> None:
    raise OSError("no route to the store")


def _opened_at(job: TableJob, minutes: int) -> KeyedView:
    from lakestate.tables.manager import TableManager

    manifest = job.backend.load_checkpoint_metadata("job", job.epoch)
    manager = TableManager.load(
        job.managers[0].task,
        job.tables,
        job.backend,
        job.epoch,
        processing_time_us=manifest.finished_ms * 1000 + minutes * 60_000_000,
    )
    return manager.keyed("t")


def test_millions_of_rows_come_back(jobs: list[TableJob]) -> None:
    job = start(jobs, KeyedTable("t", key="k bigint", value="n bigint"))
    keys = np.arange(2_500_000)
    view(job).put(pa.table({"k": keys, "n": keys * 3}))
    job.checkpoint()
    job.restart()
    asked = np.random.default_rng(3).integers(0, 5_000_000, 100_000)
    found = view(job).get(pa.table({"k": asked})).column(0)
    assert found.equals(pa.array(asked * 3, mask=asked >= 2_500_000))
    assert view(job).count() == 2_500_000
