"""How the batches of an engine relate to epochs, and what an epoch without a batch stores of the engine.

An engine numbers its batches, and knows nothing of epochs that run between them. In a manifest its files
bear the number of their epoch, so after every launch it is in step with the epochs; `BatchNumbers` follows
how they drift apart while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakestate.codec.engine_files import SparkFiles
from lakestate.coordinator.epoch_plan import LogUpdate
from lakestate.errors import IncompatibleStateError
from lakestate.protocol.metadata import Manifest, NamedBytes
from lakestate.protocol.values import Epoch


@dataclass(frozen=True, slots=True)
class EngineFiles:
    """What an engine needs to continue after an epoch, as the epoch stores it."""

    files: tuple[NamedBytes, ...]
    logs: tuple[LogUpdate, ...] = ()
    """The logs of sources that grow with what was read."""


@dataclass(frozen=True, slots=True)
class BatchNumbers:
    """Which epoch a batch of the running engine becomes.

    >>> numbers = BatchNumbers.after(None)
    >>> numbers.epoch_of(0), numbers.skip_epoch().epoch_of(1)
    (Epoch(1), Epoch(3))
    """

    shift: int = 0
    """The epochs that had no batch, since the engine was launched."""

    @classmethod
    def after(cls, newest: Manifest | None) -> BatchNumbers:
        """Those of an engine that is launched with the files of this epoch.

        An epoch before the first batch has none: the engine begins with its batch 0.
        """
        is_in_step = newest is None or has_offsets(newest.engine_files, newest.epoch)
        return cls(0 if newest is None or is_in_step else int(newest.epoch))

    def epoch_of(self, batch_id: int) -> Epoch:
        """The epoch of a batch."""
        return Epoch(Epoch.of_batch(batch_id) + self.shift)

    def batch_of(self, epoch: Epoch) -> int:
        """The batch of an epoch."""
        return epoch.batch_id - self.shift

    def skip_epoch(self) -> BatchNumbers:
        """The numbers after one more epoch without a batch."""
        return BatchNumbers(self.shift + 1)


def has_offsets(files: Sequence[NamedBytes], epoch: Epoch) -> bool:
    """Whether these files contain the offsets of this epoch."""
    return any(file.name == f"offsets/{epoch.batch_id}" for file in files)


def engine_files_without_batch(parent: Manifest | None, epoch: Epoch) -> EngineFiles:
    """The files of an epoch that has no batch of the engine's, and so has read no more than its parent."""
    if parent is None or not parent.engine_files:
        return EngineFiles(())
    logs = tuple(LogUpdate(log.name, log.pieces) for log in parent.engine_logs)
    before = SparkFiles.parse(parent.engine_files, parent.epoch, [log.name for log in logs])
    return EngineFiles(before.at(epoch).encode(), logs)


def require_position(manifest: Manifest) -> None:
    """Refuse to continue from an epoch if nobody knows how far the engine had read by then.

    An epoch before the first batch had read nothing, and the engine begins with the first row.
    """
    files = manifest.engine_files
    has_begun = bool(files) or any(source.offsets for source in manifest.sources)
    if has_begun and not has_offsets(files, manifest.epoch):
        raise IncompatibleStateError(
            "the epoch has no offsets of Spark to continue from",
            object_name=f"epoch {manifest.epoch} of job {manifest.job_id}",
            found=", ".join(file.name for file in files) or "no file of Spark",
            action="continue from a later epoch, or start the job under another job id",
        )
