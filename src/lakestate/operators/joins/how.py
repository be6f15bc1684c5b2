"""`How` and `Bounds`: which rows a join yields, and how far apart in time two rows may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError

FOR_EVER = "for ever"

Within: TypeAlias = "Sequence[str | timedelta] | None"

_FARTHEST_US = 366_000 * 86_400_000_000
"""A thousand years. Sums of a time and a bound must fit into a timestamp."""


class How(Enum):
    """Which rows a join yields."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    """Left rows that have a match, once."""
    ANTI = "anti"
    """Left rows that have none."""

    @classmethod
    def of(cls, how: How | str, where: str, taken: Sequence[How] = ()) -> How:
        """The way of that name."""
        known = taken or tuple(cls)
        if how in known or how in [each.value for each in known]:
            return cls(how)
        raise InvalidInputError(
            "unknown way to join",
            object_name=where,
            found=f"how={how!r}",
            expected=", ".join(repr(each.value) for each in known),
        )

    @property
    def yields_pairs(self) -> bool:
        """Whether columns of both sides come out."""
        return self not in (How.SEMI, How.ANTI)

    @property
    def yields_left_alone(self) -> bool:
        """Whether left rows come out that have no match."""
        return self in (How.LEFT, How.FULL, How.ANTI)

    @property
    def yields_right_alone(self) -> bool:
        """Whether right rows come out that have no match."""
        return self in (How.RIGHT, How.FULL)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The time of a right row, less that of the left row, is between these two, both included.

    >>> Bounds.of(("-5 minutes", "1 hour"), None, "join paid")
    Bounds(lower_us=-300000000, upper_us=3600000000)
    >>> Bounds.of(None, "7 days", "join paid").upper_us
    604800000000
    """

    lower_us: int
    upper_us: int

    @classmethod
    def of(cls, within: Within, keep: str | timedelta | None, where: str) -> Bounds | None:
        """The bounds that `within` or `keep` give; None for a join without bounds, kept for ever."""
        if within is None:
            return _kept(keep, where)
        if keep is not None:
            raise InvalidInputError(
                "a join takes within or keep, not both", object_name=where, found=f"within, and keep={keep!r}"
            )
        if isinstance(within, str) or not isinstance(within, Sequence) or len(within) != 2:
            raise InvalidInputError(
                "within takes two bounds",
                object_name=where,
                found=repr(within),
                expected='for example ("0 seconds", "1 hour"): right rows up to one hour after the left one',
            )
        lower_us, upper_us = (_signed_us(bound) for bound in within)
        if lower_us > upper_us:
            raise InvalidInputError(
                "the lower bound of within is above the upper one",
                object_name=where,
                found=f"({within[0]!r}, {within[1]!r})",
                action="write the earlier bound first",
            )
        return _check_reach(cls(lower_us, upper_us), where)


def _kept(keep: str | timedelta | None, where: str) -> Bounds | None:
    if keep is None:
        raise InvalidInputError(
            "a join without a time bound would keep all rows",
            object_name=where,
            action='pass within=("0 seconds", "1 hour") for right rows up to an hour after the left one, '
            'keep="7 days" for rows that are at most so far apart, or keep="for ever" to keep all rows',
        )
    if keep == FOR_EVER:
        return None
    far_us = duration_us(keep)
    return _check_reach(Bounds(-far_us, far_us), where)


def _check_reach(bounds: Bounds, where: str) -> Bounds:
    if max(-bounds.lower_us, bounds.upper_us, bounds.lower_us, -bounds.upper_us) > _FARTHEST_US:
        raise InvalidInputError(
            "a bound is further apart than rows can be",
            object_name=where,
            expected="at most 366,000 days",
            action='pass keep="for ever"',
        )
    return bounds


def _signed_us(bound: str | timedelta) -> int:
    if isinstance(bound, timedelta):
        return bound // timedelta(microseconds=1)
    text = bound.strip() if isinstance(bound, str) else bound
    if isinstance(text, str) and text.startswith("-"):
        return -duration_us(text[1:])
    return duration_us(text)
