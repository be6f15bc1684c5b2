"""Windows that yield what changed in every epoch, in a harness."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.operators.disorder import at, disordered_epochs, disturb
from tests.support.operators.window_answers import expected_windows, second

import lakestate as ls
from lakestate.operators.windows import UpdatingWindows
from lakestate.testing import OperatorHarness

KEY = ("k", "window_start")


def windows_of(window: Any, emit: str, lateness: str = "0 seconds") -> OperatorHarness:
    operator = UpdatingWindows.over(
        "k string",
        "v bigint, ts timestamp",
        window,
        emit=emit,
        allowed_lateness=lateness,
        n=ls.count(),
        total=ls.sum("v"),
        most=ls.max("v"),
        first=ls.min("ts"),
    )
    return OperatorHarness(operator, parallelism=2)


def row(key: str | None, value: int | None, second: float) -> dict[str, Any]:
    return {"k": key, "v": value, "ts": at(second)}


def apply_changes(newest: dict[Any, dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Apply changes, each of which must fit what is there."""
    for found in rows:
        change = found.pop("_change", None)
        key = tuple(found[name] for name in KEY)
        if change in ("delete", "update_preimage"):
            assert newest.pop(key) == found
        else:
            assert change is None or key not in newest
            newest[key] = found


@pytest.mark.parametrize("seed", range(12))
def test_the_newest_results_are_those_of_all_rows_at_once(seed: int) -> None:
    rng = random.Random(seed)
    hop, lateness, emit = (10, 2, 4)[seed % 3], (0, 7)[seed % 2], ("updates", "changes")[seed // 6]
    harness = windows_of(ls.Hopping("10 seconds", every=f"{hop} seconds"), emit, f"{lateness} seconds")
    rows: list[dict[str, Any]] = []
    newest: dict[Any, dict[str, Any]] = {}
    for epoch in disordered_epochs(rng):
        disturb(harness, rng, epoch)
        rng.shuffle(epoch.rows)
        watermark = None if epoch.watermark is None else at(epoch.watermark)
        apply_changes(newest, harness.epoch(epoch.table, watermark=watermark))
        rows += [row | {"previous": epoch.previous} for row in epoch.rows]
    assert sorted(newest.values(), key=str) == expected_windows(rows, 10, hop, lateness)


def test_windows_that_close_leave_the_state_and_yield_nothing_more() -> None:
    harness = windows_of(ls.Tumbling("10 seconds"), "changes")
    harness.epoch([row("ann", 1, 3), row("ann", 2, 25)], watermark=at(0))
    assert sorted(second(each["window_start"]) for each in harness.rows("windows")) == [0, 20]
    assert harness.epoch(watermark=at(10.5)) == []
    assert [second(each["window_start"]) for each in harness.rows("windows")] == [20]
    assert harness.epoch([row("ann", 4, 4)]) == []


def test_changes_have_the_results_before_and_after() -> None:
    harness = windows_of(ls.Tumbling("10 seconds"), "changes")
    first = harness.epoch([row("ann", 1, 3)])
    assert [(each["_change"], each["n"]) for each in first] == [("insert", 1)]
    second_ = harness.epoch([row("ann", 1, 3)])
    assert [(each["_change"], each["n"]) for each in second_] == [
        ("update_preimage", 1),
        ("update_postimage", 2),
    ]
