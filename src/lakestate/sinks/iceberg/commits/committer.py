"""Commits epochs to an Iceberg table: files first, then one commit, each epoch exactly once.

Before every try the table is read again to see whether it holds the epoch. A commit succeeds only on
the table as it was read, so no matter what happened in between, an epoch cannot be appended twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from lakestate.errors import (
    ConflictError,
    IncompatibleStateError,
    OutcomeUnknownError,
)
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.pre_commit import has_output
from lakestate.sinks.iceberg.catalog_calls import REFUSED, UNREACHABLE, refusal_error, wait_after
from lakestate.sinks.iceberg.commits.change import TableChange
from lakestate.sinks.iceberg.commits.progress import IcebergEpoch
from lakestate.sinks.iceberg.commits.replacement import plan_files
from lakestate.sinks.iceberg.table import TableFacts
from lakestate.sinks.table_format.epoch_files import CommitStatus

if TYPE_CHECKING:
    from lakestate.sinks.iceberg.maintenance.settings import Maintenance
    from lakestate.sinks.iceberg.sink import IcebergSink


class IcebergCommitter:
    """The committer of an Iceberg sink. See `SinkCommitter` for what each method promises."""

    def __init__(self, sink: IcebergSink) -> None:
        self._sink = sink

    def commit(self, permit: CommitPermit, pre_commits: Sequence[bytes]) -> None:
        """Append the files that the epoch finished, unless they are in the table already."""
        batch = IcebergEpoch.of(permit.job_id, permit.epoch, pre_commits)
        if not batch.files:
            if has_output(pre_commits):
                # Copies of open files, which the table knows nothing of.
                self._sink.file_sink().committer().commit(permit, pre_commits)
            return
        table = self._sink.load_table()
        if self._is_committed(table, batch):
            return
        facts = TableFacts.of(table)
        for file in batch.files:
            facts.check_is_table_of(file.format, file.path)
        # Files must be complete before the append: from then on readers open them.
        self._sink.files(table).committer().commit(permit, pre_commits)
        commit_until_done(
            self._sink,
            batch,
            table,
            prepare=lambda table: self._prepare_change(table, batch),
            is_committed=lambda table: self._is_committed(table, batch),
        )

    def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        """Remove what failed attempts left behind among the table's data files."""
        self._sink.file_sink().committer().clean_up(job_id, epoch, pre_commits)
        if self._sink.maintenance is not None:
            self._maintain(self._sink.maintenance, epoch, pre_commits)

    def _maintain(self, settings: Maintenance, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        from lakestate.sinks.iceberg.maintenance.upkeep import OwnFiles, TableUpkeep

        sink = self._sink
        own = OwnFiles.of(epoch, pre_commits, are_replaced=sink.roll.visible is not None)
        try:
            TableUpkeep(settings, sink.load_table, sink.files, own).run_if_due()
        except (CommitFailedException, *REFUSED, *UNREACHABLE) as cause:
            raise ConflictError(
                "the maintenance of a table was interrupted", object_name=sink.table, found=cause
            ) from cause

    def _prepare_change(self, table: Table, batch: IcebergEpoch) -> TableChange:
        facts = TableFacts.of(table)
        for file in batch.files:
            facts.check_is_table_of(file.format, file.path)
        plan = plan_files(table, facts.location, batch)
        plan.warn_of_left_out()
        return TableChange(table, plan, facts.location, batch.properties(), batch.summary())

    def _is_committed(self, table: Table, batch: IcebergEpoch) -> bool:
        return is_committed(
            self._sink, table, batch, lambda: batch.any_in_place(self._sink.files(table).store)
        )


class PreparedChange(Protocol):
    """A change of a table as it was loaded."""

    def commit(self) -> None:
        """Commit once."""
        ...

    def discard(self) -> None:
        """Remove what was written for it, if it is known not to have happened."""
        ...


def commit_until_done(
    sink: IcebergSink,
    batch: IcebergEpoch,
    table: Table,
    prepare: Callable[[Table], PreparedChange],
    is_committed: Callable[[Table], bool],
) -> None:
    """Commit an epoch to a table that does not hold it. After each failure, the table is read again."""
    failure: Exception | None = None
    for attempt in range(sink.commit_attempts_max):
        change: PreparedChange | None = None
        started_s = time.monotonic()
        try:
            # This reads and writes files, too, and may fail as the commit may.
            change = prepare(table)
            change.commit()
            return
        except REFUSED as cause:
            raise refusal_error(sink.table, cause) from cause
        except (CommitFailedException, *UNREACHABLE) as cause:
            failure = cause
        wait_after(attempt, started_s)
        table = sink.load_table()
        if is_committed(table):
            return
        if change is not None and isinstance(failure, CommitFailedException):
            # What stays is not in the table, and nobody reads it.
            with suppress(*UNREACHABLE):
                change.discard()
    raise _commit_failure(sink.table, batch.epoch, failure) from failure


def is_committed(sink: IcebergSink, table: Table, batch: IcebergEpoch, was_held: Callable[[], bool]) -> bool:
    """Whether a table holds an epoch. `was_held` tells it of an epoch whose snapshot is gone."""
    snapshots = (each.summary for each in table.metadata.snapshots)
    summaries = [each.additional_properties for each in snapshots if each is not None]
    status = batch.commit_status(table.properties, summaries).settle(was_held)
    if status is CommitStatus.OTHER_CONTENT:
        raise _other_job_error(sink.table, batch, table)
    return status is CommitStatus.DONE


def _other_job_error(table_name: str, batch: IcebergEpoch, table: Table) -> IncompatibleStateError:
    """The error for a table that holds another epoch of this number."""
    return IncompatibleStateError(
        f"the table holds epochs of an earlier job with the id {batch.job_id}",
        object_name=f"{table_name}, property {batch.property_name}",
        found=f"epoch {table.properties.get(batch.property_name)}, and not the files of epoch {batch.epoch}",
        action="if the job's checkpoints were removed on purpose, start it under another job id (removing "
        "the properties is enough only after all snapshots of the old job have been expired); otherwise "
        "find out who else uses the job id",
    )


def _commit_failure(
    table_name: str, epoch: Epoch, cause: Exception | None
) -> ConflictError | OutcomeUnknownError:
    kind = ConflictError if isinstance(cause, CommitFailedException) else OutcomeUnknownError
    return kind(
        f"epoch {epoch} could not be appended to an Iceberg table",
        object_name=table_name,
        found=cause,
        action="nothing is lost: the next start commits the epoch again",
    )
