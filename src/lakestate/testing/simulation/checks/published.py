"""`PublishedEpoch`: an epoch as it was when it was published, and what the operator had seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakestate.protocol.metadata import CompletionStatus, Manifest
from lakestate.testing.simulation.seen import Row, Seen, SeenEpoch


@dataclass(frozen=True)
class PublishedEpoch:
    """One published epoch."""

    manifest: Manifest
    needs: frozenset[str]
    """The objects that restoring it needs, relative to the job's root."""
    seen: Seen
    """What the operator has seen by then."""

    @property
    def offset(self) -> int:
        """How many rows of the source it includes."""
        return int(self.manifest.sources[0].offsets)

    @property
    def parallelism(self) -> dict[str, int]:
        """The number of subtasks of each step."""
        return {operator.operator_id: len(operator.subtasks) for operator in self.manifest.operators}

    def keeps_watermark(self, before: PublishedEpoch | None) -> bool:
        """An epoch that only finishes files has no rows and does not move the watermark."""
        return (
            before is not None
            and self.offset == before.offset
            and self.manifest.watermark_us == before.manifest.watermark_us
        )


def seen_after(before: Seen, manifest: Manifest, rows: Sequence[Row]) -> Seen:
    """What the operator has seen with this epoch; `rows` are all of the source."""
    own = rows[len(before.rows) : int(manifest.sources[0].offsets)]
    is_last = manifest.status is CompletionStatus.FINAL
    return before.followed_by(SeenEpoch(tuple(own), manifest.watermark_us, is_last))
