"""`IntervalJoin`: pairs of rows of two streams with equal keys, and times in a range of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.operators.context import OperatorContext
from lakestate.operators.joins.how import Bounds, How, Within
from lakestate.operators.joins.join_operator import JoinOperator
from lakestate.operators.joins.matching import TimedCodes, find_matches, key_codes
from lakestate.operators.joins.side import JoinRows, JoinSide
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import columns_of


class IntervalJoin(JoinOperator):
    """Pairs of rows with equal keys and times in a range of each other.

    >>> from lakestate.testing import OperatorHarness
    >>> paid = IntervalJoin.over("id bigint", left="item string, ts timestamp",
    ...                          right="cents bigint, at timestamp", times=("ts", "at"),
    ...                          how="left", within=("0 seconds", "1 minute"))
    >>> harness = OperatorHarness(paid)
    >>> def at(second):
    ...     return pa.scalar(second * 1_000_000, pa.timestamp("us", tz="UTC")).as_py()
    >>> harness.epoch(left=[{"id": 1, "item": "cup", "ts": at(0)}, {"id": 2, "item": "jar", "ts": at(9)}])
    []
    >>> [row["item"] for row in harness.epoch(right=[{"id": 1, "cents": 500, "at": at(60)}])]
    ['cup']
    >>> [(row["item"], row["cents"]) for row in harness.epoch(watermark=at(70))]
    [('jar', None)]

    Without `bounds`, every two rows with equal keys are a pair, and rows are kept for ever.
    """

    def __init__(
        self,
        key: Sequence[str],
        left: Sequence[Column],
        right: Sequence[Column],
        times: tuple[str, str],
        bounds: Bounds | None,
        how: How,
        *,
        hidden: Sequence[str] = (),
        output_time: str | None = None,
    ) -> None:
        lower, upper = (0, 0) if bounds is None else (bounds.lower_us, bounds.upper_us)
        self._key = tuple(key)
        self._bounds = (lower, upper)
        left_side = JoinSide(
            "left", self._key, tuple(left), times[0], lower, None if bounds is None else upper,
            yields_alone=how.yields_left_alone, yields_once=how in (How.SEMI, How.ANTI),
        )  # fmt: skip
        right_side = JoinSide(
            "right", self._key, tuple(right), times[1], -upper, None if bounds is None else -lower,
            yields_alone=how.yields_right_alone,
        )  # fmt: skip
        super().__init__(left_side, right_side, how, hidden=hidden, output_time=output_time)
        self.left_rows, self.right_rows = left_side.rows_table(), right_side.rows_table()
        for side in (self._left, self._right):
            if side.remembers:
                setattr(self, f"{side.name}_matched", side.matched_table())

    @classmethod
    def over(
        cls,
        key: str,
        *,
        left: str,
        right: str,
        times: tuple[str, str],
        how: str = "inner",
        within: Within = None,
        keep: str | None = None,
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark."""
        keys = columns_of(key, what="key")
        wanted = How.of(how, "join")
        return interval_join_class(wanted)(
            [column.name for column in keys],
            (*keys, *columns_of(left, what="left row")),
            (*keys, *columns_of(right, what="right row")),
            times,
            Bounds.of(within, keep, "join"),
            wanted,
        )

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Join the rows that are new, and yield those that can no longer match."""
        left, right = self._take_new(self._left), self._take_new(self._right)
        if any(rows.num_rows for rows in (left, right)):
            yield from self._join(ctx, left, right)
        for side in (self._left, self._right):
            if side.yields_alone:
                yield from self._alone(side, side.close(ctx))

    def _join(self, ctx: OperatorContext, left_rows: pa.Table, right_rows: pa.Table) -> Iterator[pa.Table]:
        for side, rows in ((self._left, left_rows), (self._right, right_rows)):
            if side.yields_alone:
                yield from self._alone(side, rows.filter(pc.invert(side.usable(rows))))
        left, right = self._number(left_rows, right_rows)
        held_left = self._left.held(ctx, right, self._right.near_us, -self._bounds[0])
        held_right = self._right.held(ctx, left, self._left.near_us, self._bounds[1])
        # Every pair is found once: by its left row if that is new, else by its right row.
        all_right = held_right.followed_by(right)
        by_left = find_matches(left.timed, all_right.timed, *self._bounds)
        by_right = find_matches(held_left.timed, right.timed, *self._bounds)
        if self._how.yields_pairs:
            yield from self._pairs(left.table, all_right.table, by_left)
            yield from self._pairs(held_left.table, right.table, by_right)
        found = by_left.right
        yield from self._keep(ctx, self._left, left, by_left.left, held_left, by_right.left)
        in_state, new = found[: len(held_right)], found[len(held_right) :] | by_right.right
        yield from self._keep(ctx, self._right, right, new, held_right, in_state)

    def _number(self, left: pa.Table, right: pa.Table) -> tuple[JoinRows, JoinRows]:
        """The rows that can match at all, with numbers for their keys."""
        left, right = left.filter(self._left.usable(left)), right.filter(self._right.usable(right))
        codes = key_codes(*[[rows[name] for name in self._key] for rows in (left, right)])
        return (
            JoinRows(left, TimedCodes(codes[0], self._left.times_us(left))),
            JoinRows(right, TimedCodes(codes[1], self._right.times_us(right))),
        )

    def _keep(
        self,
        ctx: OperatorContext,
        side: JoinSide,
        new: JoinRows,
        matched: np.ndarray,
        held: JoinRows,
        held_matched: np.ndarray,
    ) -> Iterator[pa.Table]:
        """Keep what may still match, and yield rows of one side that come out now."""
        first = side.record(ctx, held, held_matched) if side.remembers else None
        if self._how is How.SEMI and first is not None:
            yield from self._alone(side, new.table.filter(pa.array(matched)))
            yield from self._alone(side, first)
        before_us = side.closes_before_us(ctx)
        done = np.zeros(len(new), dtype=bool) if before_us is None else new.timed.times_us < before_us
        if side.yields_alone:
            done |= ctx.is_last
            yield from self._alone(side, new.table.filter(pa.array(done & ~matched)))
        stays = ~(done | matched) if side.yields_once else ~done
        side.insert(ctx, new.table.filter(pa.array(stays)), matched[stays])


class OuterIntervalJoin(IntervalJoin):
    """A join that yields rows without a match, and follows the watermark to know when."""

    follows_time: ClassVar[bool | None] = True


def interval_join_class(how: How) -> type[IntervalJoin]:
    """The class of operators that join so."""
    return OuterIntervalJoin if how.yields_left_alone or how.yields_right_alone else IntervalJoin
