"""`Maintenance`: what a sink does for its table, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from lakestate.config import duration_us, size_bytes
from lakestate.errors import InvalidInputError

ORPHANS_AFTER_MIN_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How a sink looks after its table, beside the stream.

    >>> Maintenance(every="1 hour", keep_snapshots="7 days", remove_orphans="3 days").every
    '1 hour'
    """

    every: str = "1 hour"
    keep_snapshots: str | None = "5 days"
    """Snapshots that are older are expired, with the files that only they refer to. None: they stay."""
    keep_snapshots_min: int = 10
    """As many of the newest snapshots are kept in any case."""
    remove_orphans: str | None = None
    """Data files that no snapshot refers to are removed when they are so old; at least a day."""
    compact: str | None = None
    """Smaller data files of a partition are merged, up to this size."""

    def __post_init__(self) -> None:
        duration_us(self.every)
        if self.keep_snapshots_min < 1:
            raise InvalidInputError("a table keeps a snapshot", found=self.keep_snapshots_min)
        if self.keep_snapshots is not None:
            duration_us(self.keep_snapshots)
        if self.compact is not None:
            size_bytes(self.compact)
        if self.remove_orphans is not None and duration_us(self.remove_orphans) < ORPHANS_AFTER_MIN_US:
            raise InvalidInputError(
                "a file that no snapshot refers to may be one that is about to be committed",
                found=f"remove_orphans={self.remove_orphans!r}",
                expected="at least 1 day, and longer than a file stays open",
            )
