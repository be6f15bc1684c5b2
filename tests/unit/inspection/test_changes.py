"""What changed between two epochs, and what a key had in each, against models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.jobs.counter_table import CounterTable
from tests.support.jobs.four_tables import TABLES, TOTALS, Rows, run_history, time
from tests.support.jobs.row_changes import Changes, Row, changes_by_key, changes_of, changes_of_bags
from tests.support.jobs.table_job import EAGER, TableJob
from tests.support.small_files import shape_as_large

import lakestate as ls
from lakestate.errors import IncompatibleStateError, InvalidInputError, NotFoundError
from lakestate.inspection.changes.difference import difference_by_key, difference_of_bags
from lakestate.inspection.changes.history import TableHistory
from lakestate.testing import count_requests

KEYS = {"totals": ["user", "item"], "seen": ["user"], "limits": ["key"]}


@pytest.fixture
def jobs() -> Iterator[list[TableJob]]:
    started: list[TableJob] = []
    yield started
    for job in started:
        job.close()


def start(jobs: list[TableJob], *tables: ls.Table, parallelism: int = 1) -> TableJob:
    jobs.append(TableJob(tables, parallelism))
    return jobs[-1]


def history_of(job: TableJob, table: str | ls.Table) -> ls.TableHistory:
    return ls.open(job.backend.objects("job").store.url).job("job").table("op", table)


def expected_changes(name: str, before: Rows, after: Rows, alive_us: int) -> Changes:
    alive = time(alive_us)

    def expired(row: Row) -> bool:
        moment: datetime | None = row.get("at", row.get("ts"))
        return moment is not None and moment < alive

    if name == "clicks":
        return changes_of_bags(before, after, expired)
    return changes_by_key(before, after, KEYS[name], expired)


def put(job: TableJob, rows: dict[int, int], table: str = "t") -> None:
    keys = np.array(list(rows), dtype=np.int64)
    job.managers[0].keyed(table).put(pa.table({"k": keys, "n": list(rows.values())}))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [ExitStack, shape_as_large], ids=["small files", "many row groups"])
@pytest.mark.parametrize("seed", range(3))
def test_changes_between_any_two_epochs_are_those_of_the_model(
    jobs: list[TableJob], seed: int, shape: Callable[[], ExitStack]
) -> None:
    with shape():
        job = start(jobs, *TABLES, parallelism=2)
        expected = run_history(job, seed)
    for name in expected[1]:
        table = history_of(job, name)
        for first, last in combinations(sorted(expected), 2):
            if last - first not in (1, 2, 5):
                continue
            found = table.changes(first, last).to_arrow()
            rows = expected_changes(name, expected[first][name], expected[last][name], last * 10 - 20)
            if name == "seen":
                # A key that was written again in between, and has expired since, has expired.
                assert sorted(each[::2] for each in changes_of(found)) == sorted(each[::2] for each in rows)
            else:
                assert changes_of(found) == rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_changes_of_some_keys_are_those_of_the_model(jobs: list[TableJob], seed: int) -> None:
    with shape_as_large():
        job = start(jobs, *TABLES, parallelism=3)
        expected = run_history(job, seed + 10)
    users = ["user-2", "user-3"]
    for name in ("totals", "clicks"):
        for first in range(1, 12):
            before, after = (
                [row for row in expected[epoch][name] if row["user"] in users] for epoch in (first, first + 1)
            )
            found = history_of(job, name).changes(first, first + 1).to_arrow({"user": users})
            assert changes_of(found) == expected_changes(name, before, after, (first + 1) * 10 - 20)


@pytest.mark.slow
def test_the_history_of_every_key_is_that_of_the_model(jobs: list[TableJob]) -> None:
    with shape_as_large():
        job = start(jobs, *TABLES, parallelism=2)
        expected = run_history(job, seed=21)
    table = history_of(job, "totals")
    for user, item in [(f"user-{number}", item) for number in range(4) for item in range(3)]:
        told: dict[int, list[Row]] = {}
        for version in table.history({"user": user, "item": item}):
            assert (version.status == "present") == bool(version.rows)
            told |= {epoch: list(version.rows) for epoch in range(version.first, version.last + 1)}
        assert told == {
            epoch: [row for row in tables["totals"] if (row["user"], row["item"]) == (user, item)]
            for epoch, tables in expected.items()
        }


def test_an_update_is_two_rows_one_after_the_other(jobs: list[TableJob]) -> None:
    job = start(jobs, ls.KeyedTable("t", key="k bigint", value="n bigint"))
    put(job, {1: 10, 2: 20})
    job.checkpoint()
    put(job, {1: 11, 2: 20, 3: 30})
    job.managers[0].keyed("t").delete(pa.table({"k": [9]}))
    job.checkpoint()
    changes = history_of(job, "t").changes(1, 2)
    assert changes.schema.names == ["k", "n", "_change", "_expired"]
    assert changes.to_arrow(columns=["k", "n", "_change"]).to_pylist() == [
        {"k": 3, "n": 30, "_change": "insert"},
        {"k": 1, "n": 10, "_change": "update_preimage"},
        {"k": 1, "n": 11, "_change": "update_postimage"},
    ]
    only_new = changes.to_arrow(pc.field("_change") == "insert", columns=["k"])
    assert only_new.to_pylist() == [{"k": 3}]
    assert changes_of(history_of(job, "t").changes(None, 1).to_arrow()) == [
        ("insert", False, "{'k': 1, 'n': 10}"),
        ("insert", False, "{'k': 2, 'n': 20}"),
    ]
    assert [each[0] for each in changes_of(history_of(job, "t").changes(2, 1).to_arrow())] == [
        "delete",
        "update_postimage",
        "update_preimage",
    ]


def test_expired_rows_are_told_from_deleted_ones(jobs: list[TableJob]) -> None:
    table = ls.KeyedTable("t", key="k bigint", value="at timestamp", ttl=ls.Ttl("20 us", column="at"))
    job = start(jobs, table)
    times = pa.array([100, 100, 120], pa.timestamp("us", tz="UTC"))
    job.managers[0].keyed("t").put(pa.table({"k": [1, 2, 3], "at": times}))
    job.checkpoint(watermark_us=100)
    job.managers[0].keyed("t").delete(pa.table({"k": [2]}))
    job.checkpoint(watermark_us=125)
    job.checkpoint(watermark_us=126)
    history = history_of(job, "t")
    found = history.changes(1, 2).to_arrow(columns=["k", "_change", "_expired"]).to_pylist()
    assert sorted(found, key=repr) == [
        {"k": 1, "_change": "delete", "_expired": True},
        {"k": 2, "_change": "delete", "_expired": False},
    ]
    statuses = [[(v.first, v.last, v.status) for v in history.history(key)] for key in (1, 2, 3, 4)]
    assert statuses == [
        [(1, 1, "present"), (2, 3, "expired")],
        [(1, 1, "present"), (2, 3, "deleted")],
        [(1, 3, "present")],
        [(1, 3, "absent")],
    ]


def test_epochs_that_are_gone_are_not_taken_for_absence(jobs: list[TableJob]) -> None:
    job = start(jobs, ls.KeyedTable("t", key="k bigint", value="n bigint"))
    for n in range(1, 8):
        put(job, {1: n // 2})
        job.checkpoint()
        if n == 2:
            job.backend.create_tag("job", "kept")
    job.retain(3)
    versions = history_of(job, "t").history(1)
    assert [(v.first, v.last, v.status, [row["n"] for row in v.rows]) for v in versions] == [
        (1, 1, "not retained", []),
        (2, 2, "present", [1]),
        (3, 4, "not retained", []),
        (5, 5, "present", [2]),
        (6, 7, "present", [3]),
    ]


def test_epochs_that_retention_deletes_meanwhile_are_not_retained(
    jobs: list[TableJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(jobs, ls.KeyedTable("t", key="k bigint", value="n bigint"))
    for n in range(1, 6):
        put(job, {1: n})
        job.checkpoint()
    history = history_of(job, "t")
    read, reads = TableHistory._source, []

    def read_beside_retention(self: TableHistory, epoch: int) -> object:
        reads.append(epoch)
        if len(reads) == 2:
            job.retain(3)
        return read(self, epoch)

    monkeypatch.setattr(TableHistory, "_source", read_beside_retention)
    versions = [(v.first, v.last, v.status, [row["n"] for row in v.rows]) for v in history.history(1)]
    assert versions[1:] == [
        (2, 2, "not retained", []),
        (3, 3, "present", [3]),
        (4, 4, "present", [4]),
        (5, 5, "present", [5]),
    ]


def test_only_what_differs_is_read(jobs: list[TableJob], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakestate.tables.runs.parquet.ROW_GROUP_ROWS", 2000)
    monkeypatch.setattr("lakestate.storage.spans.MERGED_GAP_BYTES", 0)
    job = start(
        jobs,
        ls.KeyedTable("t", key="k bigint", value="n bigint"),
        ls.KeyedTable("u", key="k bigint", value="n bigint"),
    )
    numbers = np.random.default_rng(2).integers(0, 2**60, 100_000)
    put(job, dict(enumerate(numbers.tolist())))
    job.checkpoint()
    put(job, {1: 1}, table="u")
    job.checkpoint()
    put(job, {5: 5})
    job.checkpoint()
    checkpoint = ls.open(job.backend.objects("job").store.url)
    counting = count_requests(checkpoint._backend)
    history = checkpoint.job("job").table("op", "t")
    state_bytes = history.at(3).info.size_bytes
    same, one = history.changes(1, 2), history.changes(2, 3)
    counting.take()
    assert (same.to_arrow().num_rows, counting.take().bytes_read) == (0, 0)
    assert [row["n"] for row in one.to_arrow().to_pylist()] == [numbers[5], 5]
    assert counting.take().bytes_read < state_bytes / 8


def test_an_epoch_without_the_table_is_empty(jobs: list[TableJob]) -> None:
    job = start(jobs, TOTALS)
    job.checkpoint()
    job.restart(tables=[TOTALS, ls.KeyedTable("t", key="k bigint", value="n bigint")])
    put(job, {1: 1})
    job.checkpoint()
    assert [each[0] for each in changes_of(history_of(job, "t").changes(1, 2).to_arrow())] == ["insert"]
    assert [(v.first, v.status) for v in history_of(job, "t").history(1)] == [(1, "absent"), (2, "present")]
    with pytest.raises(NotFoundError, match=r"no such table: tt; found t, totals"):
        history_of(job, "tt").changes(1, 2)
    with pytest.raises(NotFoundError, match=r"no such operator: opp"):
        ls.open(job.backend.objects("job").store.url).job("job").table("opp", "t").history(1)


OLD = ls.KeyedTable("t", key="k bigint", value="n int")
NEW = ls.KeyedTable(
    "t", key="k bigint", value="n bigint", version=2, migrations=[ls.ColumnChanges(1, widen={"n": "bigint"})]
)


@pytest.mark.usefixtures("separate_runs")
def test_epochs_of_several_versions_are_compared_through_the_declared_table(jobs: list[TableJob]) -> None:
    job = start(jobs, OLD)
    job.managers[0].keyed("t").put(pa.table({"k": [1, 2], "n": pa.array([1, 2], pa.int32())}))
    job.checkpoint()
    job.restart(tables=[NEW])
    put(job, {2: 2**40})
    job.checkpoint()
    job.compact(EAGER)
    job.restart()
    job.checkpoint()
    with pytest.raises(IncompatibleStateError, match="pass the declared table"):
        history_of(job, "t").changes(1, 3)
    assert changes_of(history_of(job, NEW).changes(1, 3).to_arrow()) == [
        ("update_postimage", False, f"{{'k': 2, 'n': {2**40}}}"),
        ("update_preimage", False, "{'k': 2, 'n': 2}"),
    ]
    assert history_of(job, NEW).changes(2, 3).to_arrow().num_rows == 0
    assert [(v.first, v.rows[0]["n"]) for v in history_of(job, NEW).history(2)] == [(1, 2), (2, 2**40)]


def test_a_type_from_elsewhere_is_compared_as_a_bag_of_rows(jobs: list[TableJob]) -> None:
    job = start(jobs, CounterTable("seen", key="word"))
    for word in ("ada", "bob"):
        job.managers[0].view("seen").add(word)  # type: ignore[attr-defined]
        job.checkpoint()
    job.managers[0].view("seen").add("ada")  # type: ignore[attr-defined]
    job.checkpoint()
    assert changes_of(history_of(job, "seen").changes(1, 3).to_arrow()) == [
        ("delete", False, "{'word': 'ada', 'n': 1}"),
        ("insert", False, "{'word': 'ada', 'n': 2}"),
        ("insert", False, "{'word': 'bob', 'n': 1}"),
    ]


def test_integers_that_outgrow_64_bits_are_compared(jobs: list[TableJob]) -> None:
    job = start(jobs, ls.GlobalKeyedTable("g", key=str, value=int))
    for value in (1, 2**64 - 1):
        job.managers[0].global_keyed("g").insert("k", value)
        job.checkpoint()
    found = history_of(job, "g").changes(1, 2).to_arrow()
    assert [int(value) for value in found["value"].to_pylist()] == [1, 2**64 - 1]


@pytest.mark.parametrize("key", [[1, 2], {"user": "a"}, []], ids=str)
def test_the_history_is_that_of_one_key(jobs: list[TableJob], key: object) -> None:
    job = start(jobs, TOTALS)
    job.checkpoint()
    with pytest.raises(InvalidInputError, match=r"not (one|a) key"):
        history_of(job, "totals").history(key)  # type: ignore[arg-type]


def test_equal_values_are_equal_whatever_their_type() -> None:
    schema = pa.schema([("k", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.float64()))])
    before = pa.table({"k": [1, 2, 3], "f": [float("nan"), 0.0, None], "l": [[1.0], None, []]}, schema)
    after = pa.table({"k": [3, 2, 1], "f": [None, -0.0, float("nan")], "l": [[], None, [2.0]]}, schema)
    found = difference_by_key(before, after, ["k"])
    assert [places.tolist() for places in (found.inserted, found.deleted, found.old, found.new)] == [
        [],
        [],
        [0],
        [2],
    ]
    bags = difference_of_bags(pa.concat_tables([before, before]), after)
    assert (bags.inserted.tolist(), sorted(bags.deleted.tolist())) == ([2], [3, 3, 4, 5])


@pytest.mark.parametrize("kind", ["keyed", "time_key"])
def test_going_back_brings_expired_rows_back(jobs: list[TableJob], kind: str) -> None:
    tables = {
        "keyed": ls.KeyedTable("t", key="k bigint", value="ts timestamp", ttl=ls.Ttl("20 us", column="ts")),
        "time_key": ls.TimeKeyTable("t", key="k bigint", value="ts timestamp", retention="20 us"),
    }
    job = start(jobs, tables[kind], ls.KeyedTable("other", key="k bigint", value="n bigint"))
    rows = pa.table({"k": [1, 2], "ts": pa.array([100, 200], pa.timestamp("us", tz="UTC"))})
    if kind == "keyed":
        job.managers[0].keyed("t").put(rows)
    else:
        job.managers[0].time_key("t").insert(rows)
    for watermark in (100, 110, 150):
        put(job, {watermark: 1}, table="other")
        job.checkpoint(watermark_us=watermark)
    table = history_of(job, "t")
    there = [
        (row["_change"], row["k"], row["_expired"]) for row in table.changes(2, 3).to_arrow().to_pylist()
    ]
    back = [(row["_change"], row["k"], row["_expired"]) for row in table.changes(3, 2).to_arrow().to_pylist()]
    assert (there, back) == ([("delete", 1, True)], [("insert", 1, False)])
