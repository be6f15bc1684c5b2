"""`Seen`: what the operator of a job has seen up to an epoch, for the oracle that computes the result.

Most results depend on the rows and the watermark alone. Some depend on how rows were divided into epochs:
which rows were late, or which values were current at the end of each. Their oracles read the epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakestate.tables.event_time import EventTimeLike, event_time_us

Row = Mapping[str, Any]


class Left(dict[str, Any]):
    """A row of the left input of an operator with two."""


class Right(dict[str, Any]):
    """A row of the right input of an operator with two."""


@dataclass(frozen=True, slots=True)
class SeenEpoch:
    """The rows of one epoch, in the order of the source, and what it knew of time."""

    rows: tuple[Row, ...]
    watermark_us: int | None
    """That of the rows of earlier epochs, as in `ctx.watermark_us`."""
    is_last: bool = False
    """Whether the stream ended with it."""

    def has_passed(self, time: EventTimeLike) -> bool:
        """Whether the watermark has reached a time, as it has reached all times when the stream ends."""
        if self.is_last:
            return True
        return self.watermark_us is not None and event_time_us(time, "timestamp") <= self.watermark_us


@dataclass(frozen=True, slots=True)
class Seen:
    """All epochs up to one that is published. Epochs without rows are among them.

    >>> seen = Seen((SeenEpoch(({"n": 1},), None), SeenEpoch(({"n": 2},), 1_000_000)))
    >>> seen.rows, seen.has_passed(1_000_000), seen.has_passed(1_000_001)
    ([{'n': 1}, {'n': 2}], True, False)
    """

    epochs: tuple[SeenEpoch, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the source."""
        return [row for epoch in self.epochs for row in epoch.rows]

    @property
    def left(self) -> list[Row]:
        """The rows of the left input."""
        return [row for row in self.rows if isinstance(row, Left)]

    @property
    def right(self) -> list[Row]:
        """The rows of the right input."""
        return [row for row in self.rows if isinstance(row, Right)]

    @property
    def watermark_us(self) -> int | None:
        """The watermark of the newest epoch in microseconds since 1970, or None if there is none yet."""
        return self.epochs[-1].watermark_us if self.epochs else None

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended."""
        return bool(self.epochs) and self.epochs[-1].is_last

    def has_passed(self, time: EventTimeLike) -> bool:
        """Whether the watermark has reached a time, as it has reached all times when the stream ends."""
        return bool(self.epochs) and self.epochs[-1].has_passed(time)

    def followed_by(self, epoch: SeenEpoch) -> Seen:
        """These epochs and one more."""
        return Seen((*self.epochs, epoch))
