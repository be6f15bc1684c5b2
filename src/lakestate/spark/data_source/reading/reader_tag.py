"""Tags that keep what a stream of changes still needs: the last epoch that it has read, and the one it reads.

A reader that falls behind retention then finds the epoch that it has reached, and compares it with the oldest
one that is left. It never holds back more than these two epochs, however long it is away.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.protocol.names import require_name
from lakestate.spark.data_source.reading.options import ReadOptions


@dataclass(frozen=True)
class ReaderTags:
    """The tags of one reader of a job, one for each epoch."""

    options: ReadOptions
    reader: str

    @property
    def _prefix(self) -> str:
        return f"reader-{require_name('reader', self.reader)}-"

    def keep(self, epoch: int) -> None:
        """Keep an epoch. Doing so again changes nothing."""
        self._backend.create_tag(self._job, f"{self._prefix}{epoch}", epoch)

    def release_before(self, epoch: int) -> None:
        """Release the epochs before one. What a process that died did not release is released here, too."""
        backend = self._backend
        for tag in backend.tags(self._job):
            if tag.name == f"{self._prefix}{tag.epoch}" and tag.epoch < epoch:
                backend.delete_tag(self._job, tag.name)

    @property
    def _job(self) -> str:
        return self.options.table_names()[0]

    @property
    def _backend(self) -> ParquetBackend:
        return ParquetBackend(self.options.checkpoint, cache_bytes=0)
