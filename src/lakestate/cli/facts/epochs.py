"""What can be read of an epoch. Damage is a fact here, not an error: the rest is shown all the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakestate.cli.cells import moment_of_ms
from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import CompletionStatus, Manifest
from lakestate.protocol.records import EpochRecord, TagRecord
from lakestate.protocol.values import Epoch, Generation

THREADS = 8


@dataclass(frozen=True, slots=True)
class SeenEpoch:
    """One epoch as it was found."""

    epoch: Epoch
    record: EpochRecord | None = None
    manifest: Manifest | None = None
    is_committed: bool = False
    tags: tuple[str, ...] = ()
    damage: str | None = None

    @property
    def status(self) -> str:
        """One word for people: complete, final, not committed, damaged."""
        if self.manifest is None:
            return "damaged"
        if not self.is_committed and self.manifest.sinks:
            return "not committed"
        return "final" if self.manifest.status is CompletionStatus.FINAL else "complete"

    @property
    def published(self) -> dt.datetime | None:
        """When the epoch record was created."""
        return None if self.record is None else moment_of_ms(self.record.published_at_ms)

    @property
    def generation(self) -> Generation | None:
        """Which start of the driver published it."""
        return None if self.record is None else self.record.generation


def see_epochs(job: JobObjects, epochs: Sequence[Epoch], tags: Sequence[TagRecord]) -> list[SeenEpoch]:
    """Read some epochs of a job, in their order."""
    names = {epoch: tuple(sorted(tag.name for tag in tags if tag.epoch == epoch)) for epoch in epochs}
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda epoch: _see(job, epoch, names[epoch]), epochs))


def _see(job: JobObjects, epoch: Epoch, tags: tuple[str, ...]) -> SeenEpoch:
    record: EpochRecord | None = None
    try:
        record = job.read_epoch(epoch)
        if record is None:
            return SeenEpoch(epoch, tags=tags)
        manifest = job.read_manifest(record)
        return SeenEpoch(epoch, record, manifest, job.is_marked_committed(epoch), tags)
    except (CorruptionError, IncompatibleStateError) as error:
        return SeenEpoch(epoch, record, tags=tags, damage=str(error))
