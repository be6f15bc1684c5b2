"""`MutedSink`: what stands for a sink in a fork that has not been asked to write.

Rows are taken and dropped. It leaves nothing to commit, carries the state that is stored as it is, and never
touches the output of the sink that it stands for: not even with the mark of an owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import Epoch
from lakestate.row_kind import RowKind
from lakestate.sinks.sink import Sink, SinkContext
from lakestate.tables.contract import Table


class _DroppedRows:
    """Takes rows and drops them; has nothing to commit."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Drop rows."""

    def finish(self, *, finish_files: bool) -> None:
        """Leave nothing."""

    def abandon(self) -> None:
        """Release nothing."""

    def commit(self, permit: CommitPermit, pre_commits: Sequence[bytes]) -> None:
        """Make nothing visible."""

    def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        """Remove nothing."""


@dataclass(frozen=True)
class MutedSink(Sink):
    """A sink that writes nothing."""

    takes = tuple(RowKind)
    declared: tuple[Table, ...]
    """The tables of the sink that it stands for."""

    def tables(self) -> Sequence[Table]:
        """The tables of the sink that it stands for."""
        return self.declared

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Accept all rows."""

    def writer(self, context: SinkContext) -> _DroppedRows:
        """Drops the rows of a subtask."""
        return _DroppedRows()

    def committer(self) -> _DroppedRows:
        """Commits nothing."""
        return _DroppedRows()

    def has_open_files(self, pre_commits: Sequence[bytes]) -> bool:
        """It never has."""
        return False
