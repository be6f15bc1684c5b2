"""Ready operators under the simulator's faults, against models in plain Python.

Every history has rows of its own, out of order and partly late. Results are compared row by row, and so is
the state of every epoch: what the watermark has passed is gone from the tables.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.simulation.operators.operator_mutations import OPERATORS, OperatorMutation
from tests.support.operators.models.history import Case, rows_with_times, timed_rows, two_streams
from tests.support.operators.models.rows import (
    Silence,
    first_rows,
    joined,
    running_changes,
    silent_keys,
    top_changes,
)
from tests.support.operators.models.windows import final_windows, sessions, updating_windows

import lakestate as ls
from lakestate.operators.aggregates import RunningAggregate
from lakestate.operators.joins import IntervalJoin
from lakestate.operators.keyed_function import KeyedFunctionOperator
from lakestate.operators.selection import FirstRows, TopRows
from lakestate.operators.windows import SessionAggregate, UpdatingWindows, WindowAggregate

KEY, COLUMNS = "k string", "v bigint, ts timestamp, id bigint"
SUMS = {"n": ls.count(), "total": ls.sum("v")}


def join(how: str, lower_s: int, upper_s: int) -> Case:
    return Case(
        f"{how} join",
        lambda: IntervalJoin.over(
            "k bigint",
            left="a bigint, ts timestamp",
            right="b bigint, at timestamp",
            times=("ts", "at"),
            how=how,
            within=(f"{lower_s} seconds", f"{upper_s} seconds"),
        ),
        partial(joined, how, lower_s, upper_s),
        two_streams,
        event_time=("ts", "at"),
        ignored=() if how == "inner" else ("_epoch", "_matched"),
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
        "keyed function",
        lambda: KeyedFunctionOperator(Silence(), KEY, time="ts"),
        silent_keys,
        rows_with_times,
    ),
    join("inner", -2, 3),
    join("left", -2, 3),
    join("full", 0, 4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 60), marks=[pytest.mark.full, pytest.mark.timeout(1200)])]
)
def test_results_and_state_are_exact(case: Case, seeds: range) -> None:
    for seed in seeds:
        case.run(seed)


BROKEN = [
    pytest.param(each, id=str(each), marks=[] if each.is_quick else [pytest.mark.full]) for each in OPERATORS
]


@pytest.mark.parametrize("mutation", BROKEN)
def test_a_broken_operator_is_noticed(mutation: OperatorMutation, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in CASES if case.name == mutation.case)
    mutation.apply(monkeypatch)
    assert any(case.violation(seed) for seed in range(mutation.seeds_max)), mutation.name
