"""Ways to break ready operators and timers, each as somebody might have written them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from lakestate.operators.joins.side import JoinSide
from lakestate.operators.selection.first_rows import FirstRows
from lakestate.operators.timers.running import RunningTimers
from lakestate.operators.timers.view import TimersView
from lakestate.operators.windows.final import WindowAggregate
from lakestate.operators.windows.panes import PANE, PaneOperator
from lakestate.operators.windows.sessions import GrownSessions, SessionAggregate

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class OperatorMutation:
    """One deliberate bug, and the case of `test_operators.py` that must show it."""

    name: str
    case: str
    apply: Callable[[Patch], None]
    seeds_max: int = 60
    is_quick: bool = False
    """True if it is part of `make test`."""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def judge_lateness_by_the_current_watermark(patch: Patch) -> None:
    def without_late(operator: Any, rows: pa.Table, ctx: Any) -> pa.Table:
        if ctx.watermark_us is None:
            return rows
        closes = operator._grid.last_end(rows[PANE].to_numpy()) + operator._lateness_us
        return rows.filter(pa.array(closes > ctx.watermark_us))

    patch.setattr(PaneOperator, "_without_late", without_late)


def close_all_that_has_passed(patch: Patch) -> None:
    """Windows that the epoch before has closed come out again, as far as their panes are still there."""

    def closing(operator: Any, ctx: Any, panes: Any) -> Any:
        until_us = None if ctx.is_last else ctx.watermark_us
        if until_us is None and not ctx.is_last:
            return operator._grid.closed_between(0, 0)
        return operator._grid.closed_between(
            None, None if until_us is None else until_us - operator._lateness_us
        )

    patch.setattr(WindowAggregate, "_closing", closing)


def remember_in_the_process_what_came_out(patch: Patch) -> None:
    """An attempt that fails has closed windows which the next one then leaves out."""
    closed: dict[int, int | None] = {}
    real = WindowAggregate._closing

    def closing(operator: Any, ctx: Any, panes: Any) -> Any:
        found = real(operator, ctx, panes)
        if found.before_us is not None and closed.get(ctx.task.subtask_index) == found.before_us:
            return operator._grid.closed_between(0, 0)
        closed[ctx.task.subtask_index] = found.before_us
        return found

    patch.setattr(WindowAggregate, "_closing", closing)


def keep_sessions_that_were_united(patch: Patch) -> None:
    patch.setattr(GrownSessions, "absorbed", property(lambda grown: grown.stored.slice(0, 0)))


def close_sessions_by_their_first_deadline(patch: Patch) -> None:
    """The deadline of a session that has not grown since is kept, and those of its growth are not."""
    real = GrownSessions.has_moved.fget  # type: ignore[attr-defined]

    def has_moved(grown: Any) -> Any:
        moved = real(grown)
        moved[grown.of] = False
        return moved

    patch.setattr(GrownSessions, "has_moved", property(has_moved))


def forget_the_end_of_the_stream(patch: Patch) -> None:
    real = SessionAggregate._close

    def close(operator: Any, ctx: Any) -> Iterator[pa.Table]:
        if not ctx.is_last:
            yield from real(operator, ctx)

    patch.setattr(SessionAggregate, "_close", close)


def remove_timers_before_they_fire(patch: Patch) -> None:
    """As if timers expired by the watermark, like rows of other tables."""
    real = TimersView.begin

    def begin(view: Any, now_us: int | None, *, goes_back: bool) -> None:
        real(view, now_us, goes_back=goes_back)
        if now_us is not None:
            view.expire(now_us + 1)

    patch.setattr(TimersView, "begin", begin)


def fire_only_timers_of_earlier_epochs(patch: Patch) -> None:
    """A timer that is set in the past waits for the next epoch, in which nobody looks for it."""
    real = TimersView.take_due

    def take_due(view: Any, *, all_of_them: bool) -> pa.Table:
        view._due = []
        return real(view, all_of_them=all_of_them)

    patch.setattr(TimersView, "take_due", take_due)


def forget_timers_at_the_end(patch: Patch) -> None:
    real = RunningTimers.due

    def due(timers: Any, where: str) -> Iterator[pa.Table]:
        timers._have_all_fired = True
        yield from real(timers, where)

    patch.setattr(RunningTimers, "due", due)


def forget_matches(patch: Patch) -> None:
    """A row that had its match in a later epoch comes out alone as well."""
    patch.setattr(JoinSide, "record", lambda side, ctx, held, matched: held.table.slice(0, 0))


def close_rows_one_epoch_early(patch: Patch) -> None:
    """Rows come out alone by the watermark, as if none could come that is as late as allowed."""

    def closes_before_us(side: Any, ctx: Any) -> int | None:
        if side.far_us is None or ctx.watermark_us is None:
            return None
        return int(ctx.watermark_us)

    patch.setattr(JoinSide, "closes_before_us", closes_before_us)


def forget_keys_with_the_watermark(patch: Patch) -> None:
    real = FirstRows.__init__

    def begin(operator: Any, rows: Any, *, time: str, within_us: int) -> None:
        real(operator, rows, time=time, within_us=0)
        operator._within_us = within_us

    patch.setattr(FirstRows, "__init__", begin)


OPERATORS: Sequence[OperatorMutation] = (
    OperatorMutation(
        "judge lateness by the current watermark",
        "tumbling window",
        judge_lateness_by_the_current_watermark,
        is_quick=True,
    ),
    OperatorMutation("close windows again", "hopping window", close_all_that_has_passed, is_quick=True),
    OperatorMutation(
        "remember in the process what came out",
        "tumbling window",
        remember_in_the_process_what_came_out,
        is_quick=True,
    ),
    OperatorMutation("keep sessions that were united", "session", keep_sessions_that_were_united),
    OperatorMutation("keep the first deadline only", "session", close_sessions_by_their_first_deadline),
    OperatorMutation("leave sessions open at the end", "session", forget_the_end_of_the_stream),
    OperatorMutation(
        "remove timers before they fire", "keyed function", remove_timers_before_they_fire, is_quick=True
    ),
    OperatorMutation("drop timers that are set late", "keyed function", fire_only_timers_of_earlier_epochs),
    OperatorMutation("leave timers unfired at the end", "keyed function", forget_timers_at_the_end),
    OperatorMutation("forget matches", "left join", forget_matches),
    OperatorMutation("close rows too early", "left join", close_rows_one_epoch_early),
    OperatorMutation("forget keys with the watermark", "deduplicate", forget_keys_with_the_watermark),
)
