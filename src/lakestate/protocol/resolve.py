"""Decides what a starting driver does, as one table from observed facts to a decision. Pure and total.

| newest epoch record | its manifest | its marker | decision |
|---|---|---|---|
| none, nothing ever collected | – | – | `StartFresh` |
| none, but a retention boundary | – | – | `Refuse`: an epoch was published, and its record is missing |
| any, and the epoch after it has a marker but no record | any | any | `Refuse`: that record is missing |
| by a higher generation | any | any | `Fenced` |
| readable | intact | present | `Resume` |
| readable | intact | missing | `ReplayCommit`, then resume |
| readable | missing or corrupt | any | `Refuse`, offering the newest good epoch |
| unreadable | – | – | `Refuse`, offering the newest good epoch |

A damaged newest epoch is never skipped silently: its output may be committed, and starting from an
older epoch would write that output again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakestate.protocol.paths import Paths
from lakestate.protocol.publication import CommitPermit, Fenced, replay_permit
from lakestate.protocol.records import BoundaryRecord, EpochRecord
from lakestate.protocol.values import Epoch, Generation


@dataclass(frozen=True, slots=True)
class Damaged:
    """An object that is missing or cannot be trusted, and why."""

    object_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ObservedEpoch:
    """What was found for one epoch whose record exists."""

    epoch: Epoch
    record: EpochRecord | Damaged
    manifest_damage: Damaged | None = None
    committed: bool = False

    @property
    def damage(self) -> Damaged | None:
        """The first damage that prevents this epoch from being restored, or None."""
        return self.record if isinstance(self.record, Damaged) else self.manifest_damage


@dataclass(frozen=True, slots=True)
class StartFresh:
    """Nothing was ever published: start with empty state."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue after this epoch."""

    record: EpochRecord


@dataclass(frozen=True, slots=True)
class ReplayCommit:
    """Finish this epoch's commit, then continue after it."""

    permit: CommitPermit

    @property
    def record(self) -> EpochRecord:
        """The published epoch."""
        return self.permit.record


@dataclass(frozen=True, slots=True)
class Refuse:
    """The newest epoch cannot be used. A person must decide whether to go back to an older one."""

    epoch: Epoch
    damage: Damaged
    newest_good: Epoch | None


Resolution = StartFresh | Resume | ReplayCommit | Refuse | Fenced


def decide_recovery(
    generation: Generation,
    observed: Sequence[ObservedEpoch],
    boundary: BoundaryRecord | None = None,
    lost: tuple[Epoch, str] | None = None,
) -> Resolution:
    """Decide from the epochs at or after the boundary that were found, newest first.

    Only the newest is needed while it is intact. If it is damaged, `observed` should contain the
    older ones too, so that the newest good one can be offered. `lost` is the epoch after the newest
    and the name of its record, if its commit marker exists but the record does not: continuing after
    the newest would write committed output again.
    """
    newest = observed[0] if observed else None
    if (
        newest is not None
        and isinstance(newest.record, EpochRecord)
        and newest.record.generation > generation
    ):
        return Fenced(newest.record.generation)
    good = next((epoch.epoch for epoch in observed if epoch.damage is None), None)
    if lost is not None:
        epoch, name = lost
        return Refuse(epoch, Damaged(name, "its commit marker exists, but the record is missing"), good)
    if newest is None:
        return StartFresh() if boundary is None else _refuse_lost_boundary(boundary)
    if isinstance(newest.record, Damaged):
        return Refuse(newest.epoch, newest.record, good)
    if newest.manifest_damage is not None:
        return Refuse(newest.epoch, newest.manifest_damage, good)
    if newest.committed:
        return Resume(newest.record)
    return ReplayCommit(replay_permit(newest.record))


def _refuse_lost_boundary(boundary: BoundaryRecord) -> Refuse:
    # The boundary is always a published epoch. Starting fresh would write all output again.
    paths = Paths(boundary.job_id)
    missing = f"{paths.root}/{paths.epoch_record(boundary.oldest)}"
    return Refuse(
        boundary.oldest, Damaged(missing, "the retention boundary names it, but it is missing"), None
    )
