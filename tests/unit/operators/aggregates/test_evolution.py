"""Adding, removing, reordering and widening aggregates of a running job keeps its state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.errors import IncompatibleStateError
from lakestate.operators.aggregates import RunningAggregate
from lakestate.operators.windows import WindowAggregate
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.testing import OperatorHarness

START = datetime(2026, 1, 1, tzinfo=UTC)


def running(columns: str = "n bigint, t string", **aggregates: ls.Aggregate) -> RunningAggregate:
    operator: RunningAggregate = RunningAggregate.over("user string", columns, **aggregates)
    return operator


def rows(*values: int, user: str = "ann") -> list[dict[str, Any]]:
    return [{"user": user, "n": n, "t": str(n)} for n in values]


def test_aggregates_are_added_removed_and_reordered_and_the_others_keep_their_state() -> None:
    harness = OperatorHarness(running(total=ls.sum("n"), top=ls.max("n")), parallelism=2)
    harness.epoch([*rows(3, 4), *rows(1, user="bob")])
    harness.restart(
        running(count=ls.count(), top=ls.max("n"), spread=ls.variance("n"), different=ls.count_distinct("t"))
    )
    harness.rescale(3)
    assert sorted(harness.rows("groups"), key=str) == [
        {"user": user, "count": None, "top": top, "spread_count": None, "spread_mean": None,
         "spread_m2": None, "different": None}
        for user, top in (("ann", 4), ("bob", 1))
    ]  # fmt: skip
    # What is new counts from now on: keys without new rows have nothing yet.
    assert harness.epoch(rows(1, 3)) == [{"user": "ann", "count": 2, "top": 4, "spread": 2.0, "different": 2}]
    assert harness.epoch(rows(2, user="bob")) == [
        {"user": "bob", "count": 1, "top": 2, "spread": None, "different": 1}
    ]


def test_a_wider_argument_keeps_the_state() -> None:
    def over(type_: str) -> RunningAggregate:
        return running(f"n {type_}", top=ls.max("n"), total=ls.sum("n"), who=ls.min_by("n", "n"))

    harness = OperatorHarness(over("int"))
    harness.epoch([{"user": "ann", "n": 3}])
    harness.restart(over("bigint"))
    assert harness.epoch([{"user": "ann", "n": 2**40}]) == [
        {"user": "ann", "top": 2**40, "total": 2**40 + 3, "who": 3}
    ]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (ls.sum("n"), ls.max("n"), "column x holds sum, declared as max: give it another name"),
        (ls.collect_set("n", limit=3), ls.collect_set("n", limit=4), r"holds collect_set\(3\), declared as"),
        (
            ls.max("n"),
            ls.max("t"),
            "column x is bigint, declared string, which cannot hold all of its values",
        ),
        (ls.count(), ls.count_distinct("t"), "column x holds count, declared as count_distinct"),
    ],
)
def test_another_aggregate_under_the_same_name_is_refused(
    before: ls.Aggregate, after: ls.Aggregate, reason: str
) -> None:
    harness = OperatorHarness(running(x=before))
    harness.epoch(rows(1))
    harness.restart(running(x=after))
    with pytest.raises(IncompatibleStateError, match=reason):
        harness.epoch(rows(1))
    harness.restart(running(x=before))
    assert harness.rows("groups") != []


def test_a_name_that_was_removed_is_not_used_again() -> None:
    harness = OperatorHarness(running(n=ls.count(), total=ls.sum("n")))
    harness.epoch(rows(1))
    for operator in (running(n=ls.count()), running(n=ls.count(), top=ls.max("n"))):
        harness.restart(operator)
        harness.epoch(rows(5, user="bob"))
    harness.restart(running(n=ls.count(), total=ls.sum("n")))
    with pytest.raises(IncompatibleStateError, match="column total was removed earlier"):
        harness.epoch(rows(1))
    harness.restart(running(n=ls.count(), all=ls.sum("n")))
    assert harness.epoch(rows(1)) == [{"user": "ann", "n": 2, "all": 1}]


def test_over_changes_aggregates_stay_as_they_are() -> None:
    def over(**aggregates: ls.Aggregate) -> RunningAggregate:
        operator: RunningAggregate = RunningAggregate.over(
            "user string", "n bigint, _sign int", retracts=True, **aggregates
        )
        return operator

    harness = OperatorHarness(over(n=ls.count()))
    harness.epoch([{"user": "ann", "n": 1, "_sign": 1}])
    for other in (over(n=ls.count(), total=ls.sum("n")), running("n bigint, _sign int", n=ls.count())):
        harness.restart(other)
        with pytest.raises(IncompatibleStateError, match="value columns are"):
            harness.epoch([{"user": "ann", "n": 1, "_sign": 1}])


def windows(**aggregates: ls.Aggregate) -> Any:
    return WindowAggregate.over(
        "user string", "n bigint, ts timestamp", ls.Tumbling("10 seconds"), **aggregates
    )


def at(second: int, n: int) -> dict[str, Any]:
    return {"user": "ann", "n": n, "ts": START + timedelta(seconds=second)}


def test_a_window_that_is_open_keeps_its_rows_when_an_aggregate_is_added() -> None:
    harness = OperatorHarness(windows(n=ls.count(), total=ls.sum("n")))
    harness.epoch([at(1, 5), at(2, 6)])
    harness.restart(windows(top=ls.max("n"), n=ls.count()))
    harness.epoch([at(3, 2)])
    (found,) = harness.epoch([], watermark=START + timedelta(seconds=10))
    assert {name: found[name] for name in ("top", "n")} == {"top": 2, "n": 3}


def test_tools_read_files_of_both_kinds_side_by_side(tmp_path: Path) -> None:
    backend = ls.ParquetBackend(f"file://{tmp_path}")
    harness = OperatorHarness(running(n=ls.count(), total=ls.sum("n")), backend=backend)
    keys = [f"user-{number}" for number in range(300)]
    harness.epoch([row for key in keys for row in rows(1, user=key)])
    after = running(top=ls.max("n"), n=ls.count())
    manifest = backend.load_checkpoint_metadata("harness", 1)
    objects = backend.objects("harness")
    assert ls.dry_run(list(after.tables().values()), manifest, "operator", objects).is_clean
    harness.restart(after)
    harness.epoch(rows(7, user="user-0"))
    expected = {
        key: {"user": key, "top": 7 if key == "user-0" else None, "n": 2 if key == "user-0" else 1}
        for key in keys
    }
    stored = ls.read_state(f"file://{tmp_path}", "harness", "operator", "groups")
    assert {row["user"]: row for row in stored.to_pylist()} == expected
    assert ls.verify(backend, "harness").is_clean


def table(value: str, **meanings: str) -> ls.KeyedTable:
    return ls.KeyedTable("totals", key="k bigint", value=value, meanings=meanings)


BEFORE = table("n bigint, total double", n="count", total="sum")
AFTER = table("top double, n bigint", n="count", top="max")


@pytest.mark.parametrize("caches", [True, False])
def test_some_columns_of_a_large_file_from_before_are_read_before_and_after_it_is_merged(
    caches: bool,
) -> None:
    job = TableJob([BEFORE], caches=caches)
    count = 150_000
    totals = np.random.default_rng(1).random(count)
    job.managers[0].keyed("totals").put(
        pa.table({"k": np.arange(count), "n": np.arange(count), "total": totals})
    )
    job.checkpoint()
    job.restart(tables=[AFTER])
    for expected in ([None, None], [None, 2.5]):
        view = job.managers[0].keyed("totals")
        asked = pa.table({"k": [5, count - 1]})
        assert view.get(asked, ["n"]).to_pydict() == {"n": [5, count - 1]}
        assert view.get(asked, ["top"]).to_pydict() == {"top": expected}
        assert view.contains(asked).to_pylist() == [True, True]
        view.put(pa.table({"k": [count - 1], "top": [2.5], "n": [count - 1]}))
        job.checkpoint()
        job.restart()
    job.compact(CompactionPolicy(files_min=2, files_max=4, size_ratio=1e9, size_floor_bytes=1))
    assert job.compacted is not None
    job.restart()
    job.managers[0].keyed("totals").put(pa.table({"k": [-1], "top": [1.0], "n": [1]}))
    job.checkpoint()
    job.restart()
    view = job.managers[0].keyed("totals")
    assert view.count() == count + 1
    assert view.get(asked).to_pydict() == {"top": [None, 2.5], "n": [5, count - 1]}
    job.close()
