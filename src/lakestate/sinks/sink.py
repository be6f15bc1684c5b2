"""What a sink is: a stateful writer in every subtask, and a committer on the driver.

Writers keep files open across epochs. Open files are state, in an ordinary `KeyedTable`. Finished files
are handed to the manifest as the epoch's pre-commit, through a `GlobalKeyedTable` that holds nothing
else. Nothing becomes visible to readers before the epoch is published and the driver commits it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa

from lakestate.ambient import Ambient
from lakestate.job.objects import JobObjects
from lakestate.observability.file_events import FileEvent
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import FIRST_EPOCH, Epoch, Generation, TaskInfo
from lakestate.row_kind import RowKind, StreamKind, require_kind
from lakestate.tables.contract import Table
from lakestate.tables.manager import TableManager

if TYPE_CHECKING:
    from lakestate.sinks.files.sink import FileSink
    from lakestate.sinks.output_owner import OutputClaim, OutputOwner
    from lakestate.sinks.partitioning.partitioner import Partitioning


_SINKS_THAT_TAKE_UPDATES = (
    "write them to a sink that takes them: DeltaSink(key=…), IcebergSink(key=…), KafkaSink(key=…) or "
    "PostgresSink(key=…)"
)


def _tell_nobody(event: FileEvent) -> None:
    """Take an event of a file that nobody asked for."""


@dataclass(frozen=True)
class SinkContext:
    """One subtask of a sink in one epoch. `task.operator_id` is the sink's id unless one is given."""

    task: TaskInfo
    epoch: Epoch
    tables: TableManager
    """The sink's own state tables, already restored; the caller checkpoints them."""
    ambient: Ambient
    watermark_us: int | None
    schema: pa.Schema
    """The schema of every batch."""
    event_time: str | None = None
    """The event-time column of the rows, if the stream has one."""
    sink_id: str | None = None
    """The sink, if it is not the operator itself: several operators may write for one sink."""
    on_file_event: Callable[[FileEvent], None] = _tell_nobody
    """Takes what happens to files. It is passed on if this attempt counts and its epoch is published."""
    processing_time_us: int = 0
    """The time of the epoch by the driver's clock, the same in all subtasks."""


class SinkWriter(Protocol):
    """Writes the rows of one subtask in one epoch."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        ...

    def finish(self, *, finish_files: bool) -> None:
        """End the epoch: put everything needed to continue, or to commit, into the state tables.

        Open files go into the table, finished ones into its commit data. With `finish_files` all
        files are finished. Called before `TableManager.checkpoint`.
        """
        ...

    def abandon(self) -> None:
        """Release local resources after a failure. Nothing stored is touched."""
        ...


class SinkCommitter(Protocol):
    """Makes what an epoch finished visible. On the driver, after the epoch is published."""

    def commit(self, permit: CommitPermit, pre_commits: Sequence[bytes]) -> None:
        """Commit the permit's epoch. Called again after a crash: doing it twice is success.

        Only a published epoch has a permit, so nothing can be committed before that.
        """
        ...

    def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        """Remove what failed attempts left behind, once the epoch is committed. Off the critical path.

        A pre-commit names what its subtask has finished and what it keeps open. Anything that was begun
        in this epoch or before and that none of the epoch's pre-commits names is garbage: no later epoch
        can refer to it. So any process can call this, at any later time.
        """
        ...


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """What a driver that has claimed a job knows about the attempts of drivers before it.

    Those have lower generations. What they wrote can still count only if the newest epoch names it, or a
    manifest of the next one: such a manifest was written before the claim, and its driver may be about
    to publish it. Everything else of theirs is garbage for good.
    """

    job_id: str
    sink_id: str
    state_id: str
    generation: Generation
    """The driver's own. Its attempts, and those of its successors, have this one or a higher one."""
    newest: Sequence[bytes]
    """The pre-commits of the newest epoch."""
    pending: Callable[[], Sequence[bytes]]
    """Reads the pre-commits of all manifests of the next epoch: a listing, and an object for each."""
    job: JobObjects | None = None
    """The job's own objects, for a sink that has rows among them."""
    following: Epoch = FIRST_EPOCH
    """The epoch after the newest one."""


class Sink(ABC):
    """What users declare. Immutable and picklable: it is shipped to every subtask."""

    takes: ClassVar[tuple[RowKind, ...]] = (RowKind.APPEND,)
    """The kinds of rows that it can write."""

    def for_stream(self, kind: StreamKind, who: str) -> Sink:
        """The sink as it writes the rows of a stream. Refuses a kind of rows that it does not take."""
        require_kind(kind, self.takes, who, _SINKS_THAT_TAKE_UPDATES)
        return self

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The state that writers of this sink keep."""

    @abstractmethod
    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse, before anything starts, rows that this sink cannot write.

        `event_time` is the stream's event-time column; None if the stream has none.
        """

    def dry_run(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse what `check` refuses, and create nothing.

        Override it if `check` prepares the place that the sink writes to.
        """
        self.check(schema, event_time)

    @abstractmethod
    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch. It continues the files in the state tables."""

    @abstractmethod
    def committer(self) -> SinkCommitter:
        """The committer, for the driver."""

    def job_committer(self, job: JobObjects) -> SinkCommitter:
        """The committer, for a driver that has the job's own objects: a sink may have rows among them."""
        return self.committer()

    def committed_files(
        self, job_id: str, sink_id: str, epoch: Epoch, pre_commits: Sequence[bytes]
    ) -> Sequence[FileEvent]:
        """An event for each file that the commit of an epoch made visible. Does no I/O."""
        return ()

    def empty_pre_commit(self, job_id: str, sink_id: str, state_id: str) -> bytes | None:
        """The pre-commit of an epoch that leaves nothing, for `SinkCommitter.clean_up` of such an epoch.

        None if only epochs with pre-commits are cleaned up.
        """
        return None

    def has_open_files(self, pre_commits: Sequence[bytes]) -> bool:
        """Whether an epoch with these pre-commits left something open that `finish_files` would finish.

        If in doubt, it did: an epoch that finishes nothing does no harm.
        """
        return True

    @property
    def follows_clock(self) -> bool:
        """Whether time alone gives it something to do, and so it wants an epoch even without rows."""
        return False

    def due_ms(self, pre_commits: Sequence[bytes]) -> int | None:
        """The time for which an epoch with these pre-commits wants another one, even without rows.

        Asked only of a sink that follows the clock. None if it waits for rows.
        """
        return None

    def clear_earlier_attempts(self, earlier: EarlierAttempts) -> None:
        """Remove what failed attempts left, before the first epoch of a driver. Repeating it is harmless.

        Without this, a job that fails again and again before it publishes an epoch fills its disk.
        """
        return

    @property
    def shuffled_partitioning(self) -> Partitioning | None:
        """The partitions whose rows must each go to one subtask, or None if rows can go to any."""
        return None

    @property
    def follows_event_time(self) -> bool:
        """Whether it finishes files when the watermark passes, and so wants an epoch even without rows."""
        return False

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Own the output, or refuse: called once at a start, before anything of the job is written to it.

        A sink whose jobs cannot disturb each other needs no owner.
        """
        return

    def file_sink(self) -> FileSink | None:
        """The file sink that writes this sink's files, or None if it keeps no files open.

        With it, unfinished output can be verified together with the state.
        """
        return None
