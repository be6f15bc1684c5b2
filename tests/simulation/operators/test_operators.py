"""Ready operators under the simulator's faults, against models in plain Python.

Every history has rows of its own, out of order and partly late. Results are compared row by row, and so is
the state of every epoch: what the watermark has passed is gone from the tables.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.simulation.operators.operator_mutations import OPERATORS, OperatorMutation
from tests.support.operators.models.history import (
    Case,
    rows_in_panes,
    rows_with_times,
    signed_rows,
    timed_rows,
    two_streams,
)
from tests.support.operators.models.joins import joined, looked_up, window_joined
from tests.support.operators.models.rows import (
    Silence,
    first_rows,
    newest_changes,
    running_changes,
    silent_keys,
    top_changes,
    top_of_windows,
    totals_of_changes,
)
from tests.support.operators.models.windows import final_windows, sessions, updating_windows

import lakestate as ls
from lakestate.operators.aggregates import RunningAggregate
from lakestate.operators.joins import IntervalJoin, Lookup, WindowJoin
from lakestate.operators.keyed_function import KeyedFunctionOperator
from lakestate.operators.selection import FirstRows, NewestRows, TopRows, WindowTop
from lakestate.operators.windows import SessionAggregate, UpdatingWindows, WindowAggregate

KEY, COLUMNS = "k string", "v bigint, ts timestamp, id bigint"
SIDES = {"left": "a bigint, ts timestamp", "right": "b bigint, at timestamp"}
SUMS = {"n": ls.count(), "total": ls.sum("v")}


def join(how: str, lower_s: int, upper_s: int) -> Case:
    return Case(
        f"{how} join",
        lambda: IntervalJoin.over(
            "k bigint",
            **SIDES,
            times=("ts", "at"),
            how=how,
            within=(f"{lower_s} seconds", f"{upper_s} seconds"),
        ),
        partial(joined, how, lower_s, upper_s),
        two_streams,
        event_time=("ts", "at"),
        ignored=() if how == "inner" else ("_epoch", "_matched"),
        # What is left of a row that has come out is the join's own affair.
        checks_state=how not in ("semi", "anti"),
    )


CASES = [
    Case(
        "tumbling window",
        lambda: WindowAggregate.over(KEY, COLUMNS, ls.Tumbling("5 seconds"), **SUMS),
        partial(final_windows, 5, 5, 5, 0),
        timed_rows,
    ),
    Case(
        "hopping window",
        lambda: WindowAggregate.over(
            KEY, COLUMNS, ls.Hopping("6 seconds", every="4 seconds"), allowed_lateness="2 seconds", **SUMS
        ),
        partial(final_windows, 6, 4, 2, 2),
        timed_rows,
    ),
    Case(
        "updating window",
        lambda: UpdatingWindows.over(KEY, COLUMNS, ls.Tumbling("5 seconds"), emit="updates", **SUMS),
        partial(updating_windows, 5),
        timed_rows,
    ),
    Case(
        "session",
        lambda: SessionAggregate.over(
            KEY, COLUMNS, ls.Session("3 seconds"), allowed_lateness="1 second", **SUMS
        ),
        partial(sessions, 3, 1),
        timed_rows,
    ),
    Case(
        "deduplicate",
        lambda: FirstRows.over(KEY, COLUMNS, time="ts", within="2 seconds"),
        partial(first_rows, 2),
        rows_with_times,
    ),
    Case(
        "newest row",
        lambda: NewestRows.over(KEY, COLUMNS, time="ts", emit="changes"),
        newest_changes,
        timed_rows,
    ),
    Case(
        "top",
        lambda: TopRows.over(KEY, COLUMNS, n=2, by="v desc, id", emit="changes"),
        partial(top_changes, 2),
        timed_rows,
    ),
    Case(
        "running aggregate",
        lambda: RunningAggregate.over(KEY, COLUMNS, emit="changes", **SUMS),
        running_changes,
        timed_rows,
    ),
    Case(
        "aggregate over changes",
        lambda: RunningAggregate.over(
            KEY,
            f"{COLUMNS}, _sign int",
            retracts=True,
            **SUMS,
            top=ls.max("v"),
            different=ls.count_distinct("v"),
        ),
        totals_of_changes,
        signed_rows,
        checks_state=False,
    ),
    Case(
        "top of window",
        lambda: WindowTop.over(KEY, COLUMNS, ls.Tumbling("5 seconds"), n=2, by="v desc, id"),
        partial(top_of_windows, 2, 5),
        rows_in_panes,
    ),
    Case(
        "keyed function",
        lambda: KeyedFunctionOperator(Silence(), KEY, time="ts"),
        silent_keys,
        rows_with_times,
    ),
    join("inner", -2, 3),
    join("left", -2, 3),
    join("full", 0, 4),
    join("semi", -2, 3),
    join("anti", -2, 3),
    Case(
        "window join",
        lambda: WindowJoin.over(
            "k bigint",
            ls.Hopping("6 seconds", every="4 seconds"),
            **SIDES,
            times=("ts", "at"),
            how="left",
        ),
        partial(window_joined, 6, 4, ("left_rows_6s_every_4s", "right_rows_6s_every_4s")),
        two_streams,
        event_time=("ts", "at"),
    ),
    Case(
        "lookup",
        lambda: Lookup.over("k bigint", **SIDES, time="at"),
        looked_up,
        two_streams,
        event_time=("ts", "at"),
    ),
]


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_results_and_state_are_exact(case: Case, seed: int) -> None:
    case.run(seed)


BROKEN = [
    pytest.param(each, id=str(each), marks=[] if each.is_quick else [pytest.mark.full]) for each in OPERATORS
]


@pytest.mark.parametrize("mutation", BROKEN)
def test_a_broken_operator_is_noticed(mutation: OperatorMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in CASES if case.name == mutation.case)
    mutation.apply(monkeypatch)
    assert any(case.violation(seed) for seed in range(mutation.seeds_max)), mutation.name
