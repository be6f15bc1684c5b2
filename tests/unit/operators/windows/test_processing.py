"""Windows of processing time, in a harness."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.operators.disorder import at
from tests.support.operators.window_answers import second

import lakestate as ls
from lakestate.operators.windows import ProcessingTimeWindows
from lakestate.testing import OperatorHarness


def counts(window: Any) -> OperatorHarness:
    return OperatorHarness(ProcessingTimeWindows.over("k string", "", window, n=ls.count()), parallelism=2)


def epoch(harness: OperatorHarness, time: float, *keys: str) -> list[tuple[Any, ...]]:
    rows = harness.epoch([{"k": key} for key in keys], processing_time=at(time))
    return sorted(
        (row["k"], second(row["window_start"]), second(row["window_end"]), row["n"]) for row in rows
    )


def test_a_window_comes_out_once_when_its_time_has_passed() -> None:
    harness = counts(ls.Tumbling("10 seconds", time="processing"))
    assert epoch(harness, 1, "ann", "bob") == []
    assert epoch(harness, 9.999, "ann") == []
    harness.crash([{"k": "ann"}])
    harness.rescale(3)
    assert epoch(harness, 10, "ann") == [("ann", 0, 10, 2), ("bob", 0, 10, 1)]
    assert epoch(harness, 35) == [("ann", 10, 20, 1)]
    assert harness.rows("windows") == []


@pytest.mark.parametrize("parallelism", [1, 3])
def test_hopping_windows_come_out_once_after_rescaling(parallelism: int) -> None:
    harness = counts(ls.Hopping("10 seconds", every="4 seconds", time="processing"))
    assert epoch(harness, 5, "ann") == []
    assert epoch(harness, 10, "bob") == [("ann", -4, 6, 1), ("ann", 0, 10, 1)]
    harness.rescale(parallelism)
    assert epoch(harness, 14) == [("ann", 4, 14, 1), ("bob", 4, 14, 1)]
    assert epoch(harness, 14) == []
    assert epoch(harness, 60) == [("bob", 8, 18, 1)]
    assert harness.rows("windows") == []


def test_an_epoch_is_asked_for_when_the_next_window_ends() -> None:
    class Waking(ProcessingTimeWindows):
        due: list[int | None] = []  # noqa: RUF012

        def on_epoch_end(self, ctx: ls.OperatorContext) -> Any:
            yield from super().on_epoch_end(ctx)
            self.due.append(ctx.due_us)

    window = ls.Tumbling("10 seconds", time="processing")
    harness = OperatorHarness(Waking.over("k string", "", window, n=ls.count()))
    for time, keys in ((1, ["ann"]), (2, []), (10, []), (11, [])):
        epoch(harness, time, *keys)
    end_us = int(at(10).timestamp() * 1_000_000)
    assert Waking.due == [end_us, end_us, None, None]


def test_open_windows_come_out_when_the_stream_ends() -> None:
    harness = counts(ls.Tumbling("10 seconds", time="processing"))
    epoch(harness, 1, "ann")
    assert [row["n"] for row in harness.drain([{"k": "ann"}], processing_time=at(2))] == [2]
    assert harness.rows("windows") == []
