"""What can be said about an epoch from its record, its manifest and its marker, without reading state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakestate.errors import CorruptionError, IncompatibleStateError, LakestateError, NotFoundError
from lakestate.inspection.listing import Listing, time_of_ms, time_of_us
from lakestate.job.named_epochs import readable_tags
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.protocol.metadata import Manifest, SourceOffsets
from lakestate.protocol.records import EpochRecord
from lakestate.protocol.values import Epoch, Generation
from lakestate.storage.parallel import map_in_parallel


@dataclass(frozen=True, slots=True)
class EpochInfo:
    """One published epoch. Of a damaged one, only what could be read is there, and `problem` says why.

    `rows` and `size_bytes` are those of data files: overwritten and removed rows count until compaction
    drops them. `StateTable.count` says how many rows there are.
    """

    epoch: Epoch
    status: str
    """`complete`; `final`, if the stream has ended with it; `damaged`."""
    committed: bool
    """Whether all output of the epoch is visible."""
    published: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    watermark_us: int | None = None
    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    written_bytes: int = 0
    """What the epoch itself wrote."""
    parent: Epoch | None = None
    generation: Generation | None = None
    operators: tuple[str, ...] = ()
    offsets: tuple[SourceOffsets, ...] = ()
    """How far each source was read."""
    tags: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def watermark(self) -> datetime | None:
        """The watermark as a time; None if there is none, or no date has it."""
        return time_of_us(self.watermark_us)


def list_epochs(job: JobObjects) -> Listing[EpochInfo]:
    """Every epoch that can be opened, oldest first."""
    epochs, tags = open_epochs(job)
    found = map_in_parallel(lambda epoch: find_epoch_info(job, epoch, tags.get(epoch, ())), epochs)
    return Listing(info for info in found if info is not None)


def open_epochs(job: JobObjects) -> tuple[list[Epoch], Mapping[Epoch, tuple[str, ...]]]:
    """The epochs that retention has not given up, oldest first, and the tags that keep some of them."""
    epochs, boundary = job.list_epochs(), job.read_boundary()
    tags: dict[Epoch, tuple[str, ...]] = {}
    for tag in readable_tags(job)[0]:
        tags[tag.epoch] = (*tags.get(tag.epoch, ()), tag.name)
    if boundary is not None:
        epochs = [epoch for epoch in epochs if epoch >= boundary.record.oldest or epoch in tags]
    return epochs, tags


def find_epoch_info(job: JobObjects, epoch: Epoch, tags: Sequence[str]) -> EpochInfo | None:
    """What the objects of an epoch say, or None if retention has deleted it meanwhile.

    Damage is told, not raised: other epochs may be sound.
    """
    committed = job.is_marked_committed(epoch)
    try:
        record = job.read_epoch(epoch)
        return None if record is None else describe_epoch(record, job.read_manifest(record), committed, tags)
    except (CorruptionError, IncompatibleStateError) as problem:
        return _damaged_epoch(job, epoch, committed, tags, problem)


def _damaged_epoch(
    job: JobObjects, epoch: Epoch, committed: bool, tags: Sequence[str], problem: LakestateError
) -> EpochInfo | None:
    try:
        open_epoch(job, epoch)
    except NotFoundError:
        return None
    except (CorruptionError, IncompatibleStateError):
        pass
    return EpochInfo(epoch, "damaged", committed, tags=tuple(tags), problem=str(problem))


def describe_epoch(
    record: EpochRecord, manifest: Manifest, committed: bool, tags: Sequence[str]
) -> EpochInfo:
    """What a record and a manifest say."""
    state = manifest.summary
    return EpochInfo(
        epoch=manifest.epoch,
        status=manifest.status.name.lower(),
        committed=committed,
        published=time_of_ms(record.published_at_ms),
        started=time_of_ms(manifest.started_ms),
        finished=time_of_ms(manifest.finished_ms),
        watermark_us=manifest.watermark_us,
        rows=state.row_count,
        size_bytes=state.size_bytes,
        files=state.file_count,
        written_bytes=state.bytes_written,
        parent=manifest.parent,
        generation=manifest.generation,
        operators=tuple(entry.operator_id for entry in manifest.operators),
        offsets=manifest.sources,
        tags=tuple(tags),
    )
