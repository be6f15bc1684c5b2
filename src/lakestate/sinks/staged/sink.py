"""`StagedSink`: the base of sinks that deliver rows to a system which knows nothing of epochs.

A subtask stages its rows as objects of the job. Once the epoch is published, the driver delivers them. The
target records which epoch it holds, in the same transaction as the rows, so that an epoch that is delivered
again, by a driver that lost an answer, by its successor or by a zombie, changes nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.paths import CHECKPOINTS
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import Epoch
from lakestate.sinks.sink import EarlierAttempts, Sink, SinkCommitter, SinkContext, SinkWriter
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.tables.contract import Table
from lakestate.tables.staged.pre_commit import StagedRows
from lakestate.tables.staged.table import STAGED_ROWS, StagedTable, StagedView, staged_before


class StagedSink(Sink):
    """A sink that delivers the rows of an epoch once it is published.

    What is left to a sink: `check`, and `deliver`.
    """

    @abstractmethod
    def deliver(self, epoch: StagedEpoch) -> None:
        """Deliver the rows of a published epoch, unless the target has them.

        Called again after a crash, and by a driver that was stalled while its successor delivered this
        epoch and later ones: an epoch that is not after the newest one at the target changes nothing.
        """

    def tables(self) -> Sequence[Table]:
        """The rows of the epoch."""
        return (StagedTable(STAGED_ROWS),)

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch."""
        return StagedWriter(context)

    def committer(self) -> SinkCommitter:
        """A committer that can deliver nothing: see `job_committer`."""
        return StagedCommitter(self, None)

    def job_committer(self, job: JobObjects) -> SinkCommitter:
        """The committer, for the driver."""
        return StagedCommitter(self, job)

    def has_open_files(self, pre_commits: Sequence[bytes]) -> bool:
        """No: all rows of an epoch are delivered with it."""
        return False

    def clear_earlier_attempts(self, earlier: EarlierAttempts) -> None:
        """Remove what failed drivers staged for the next epoch. Costs a listing of that epoch.

        Attempts of earlier epochs, and of this driver, are collected by retention, like those of state.
        """
        if earlier.job is None:
            return
        job = earlier.job
        prefix = job.store_path(f"{CHECKPOINTS}{earlier.following:d}/operator-{earlier.sink_id}/")
        listed = [info.path.removeprefix(f"{job.job_id}/") for info in job.store.list(prefix)]
        dead = staged_before(listed, earlier.generation)
        if not dead:
            return
        parts = (StagedRows.decode(data) for data in (*earlier.newest, *earlier.pending()))
        needed = {each.path for part in parts for each in part.objects}
        fence = job.read_fence()
        if fence is not None and fence.record.generation == earlier.generation:
            job.store.delete_many([job.store_path(path) for path in dead if path not in needed])


class StagedWriter:
    """Stages the rows of one subtask in one epoch. See `SinkWriter` for what each method promises."""

    def __init__(self, context: SinkContext) -> None:
        view = context.tables.view(STAGED_ROWS)
        if not isinstance(view, StagedView):
            raise InvalidInputError("not a table of staged rows", found=type(view).__name__)
        self._view = view
        self._epoch = context.epoch

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows."""
        self._view.append(batch, self._epoch)

    def finish(self, *, finish_files: bool) -> None:
        """Do nothing: the checkpoint of the table writes the rest of the rows."""

    def abandon(self) -> None:
        """Do nothing: an attempt that fails is not checkpointed."""


@dataclass(frozen=True, slots=True)
class StagedCommitter:
    """The committer of a staged sink. See `SinkCommitter` for what each method promises."""

    sink: StagedSink
    job: JobObjects | None

    def commit(self, permit: CommitPermit, pre_commits: Sequence[bytes]) -> None:
        """Deliver the epoch."""
        if self.job is None:
            raise InvalidInputError(
                "the rows of a staged sink are in the storage of its job",
                object_name=f"epoch {permit.epoch} of job {permit.job_id}",
                action="commit with the committer that job_committer returns",
            )
        epoch = StagedEpoch.of(self.job, permit, pre_commits)
        if epoch is not None:
            self.sink.deliver(epoch)

    def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        """Do nothing: retention collects what failed attempts staged, together with their epoch."""
