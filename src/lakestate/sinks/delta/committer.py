"""Commits epochs that append to a Delta table: files first, then one commit of the log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lakestate.errors import CorruptionError
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import Epoch
from lakestate.sinks.delta.epoch_log import Commit
from lakestate.sinks.delta.features import check_features
from lakestate.sinks.delta.partition_values import partition_values
from lakestate.sinks.delta.progress import EpochEntry
from lakestate.sinks.delta.statistics import StatisticsColumn, statistics_columns, statistics_json
from lakestate.sinks.delta.table import TableFacts
from lakestate.sinks.files.pre_commit import FilePreCommit, has_output
from lakestate.sinks.table_format.epoch_files import EpochFiles

if TYPE_CHECKING:
    from lakestate.sinks.delta.sink import DeltaSink


class DeltaCommitter:
    """The committer of a Delta sink. See `SinkCommitter` for what each method promises."""

    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink

    def commit(self, permit: CommitPermit, pre_commits: Sequence[bytes]) -> None:
        """Add the files that the epoch finished to the table, unless they are in it already."""
        batch = EpochFiles.of(permit.job_id, permit.epoch, pre_commits)
        if not batch.files:
            if has_output(pre_commits):
                # Copies of open files, which the table knows nothing of.
                self._sink.file_sink().committer().commit(permit, pre_commits)
            return
        files = self._sink.file_sink()
        is_whole = False

        def prepare(table: DeltaTable) -> Commit:
            nonlocal is_whole
            actions = self._add_actions(table, batch)
            if not is_whole:
                # Files must be complete before the commit: from then on readers open them.
                files.committer().commit(permit, pre_commits)
                is_whole = True
            by = table.metadata().partition_columns
            return lambda properties: table.create_write_transaction(
                actions, "append", table.schema(), by, commit_properties=properties
            )

        entry = EpochEntry.of_files(batch)
        self._sink.epoch_log.commit(entry, lambda: batch.any_in_place(files.store), prepare)

    def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        """Remove what failed attempts left behind among the table's data files."""
        self._sink.file_sink().committer().clean_up(job_id, epoch, pre_commits)

    def _add_actions(self, table: DeltaTable, batch: EpochFiles) -> list[AddAction | RemoveAction]:
        check_features(table, self._sink.url)
        facts = TableFacts.of(table, self._sink.url)
        columns = statistics_columns(facts.data_schema, facts.properties)
        now_ms = time.time_ns() // 1_000_000
        return [add_action(file, facts, columns, now_ms) for file in batch.files]


def add_action(
    file: FilePreCommit, facts: TableFacts, columns: Sequence[StatisticsColumn], now_ms: int
) -> AddAction:
    """The entry that adds a file to the table."""
    facts.check_file(file)
    values = partition_values(file.path, facts.partition_fields)
    try:
        shown = statistics_json(file.statistics, columns)
    except (ValueError, TypeError, ArithmeticError) as cause:
        raise CorruptionError(
            "the pre-commit of a finished file does not fit the table",
            object_name=file.path,
            found=f"{type(cause).__name__}: {cause}"[:200],
        ) from cause
    return AddAction(file.path, file.size_bytes, values, now_ms, True, shown)
