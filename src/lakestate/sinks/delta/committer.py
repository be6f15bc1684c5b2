"""Commits epochs that append to a Delta table: files first, then one commit of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import Epoch
from lakestate.sinks.delta.change import Action, TableChange
from lakestate.sinks.delta.epoch_log import Commit
from lakestate.sinks.delta.features import check_features
from lakestate.sinks.delta.progress import EpochEntry
from lakestate.sinks.delta.table import TableFacts
from lakestate.sinks.files.pre_commit import has_output
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
        entry, log = EpochEntry.of_files(batch), self._sink.epoch_log
        new = [file for file in batch.files if not file.replaces]
        large = [file for file in batch.files if file.replaces]
        is_whole = False

        def prepare(table: DeltaTable) -> Commit:
            nonlocal is_whole
            change = self._change(table, batch)
            if not is_whole:
                # Files must be complete before the commit: from then on readers open them.
                files.committer().commit(permit, pre_commits)
                is_whole = True
            return _write(table, change.add(new) if new else change.replace(large))

        log.commit(entry, lambda: batch.any_in_place(files.store), prepare)
        if new and large:
            # Not in the commit before: rows that are new there would be in no file that says so, and
            # whoever follows the table would miss them. Later epochs come only after this.
            log.commit(
                entry.of_replacement(),
                lambda: True,
                lambda table: _write(table, self._change(table, batch).replace(large)),
            )

    def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        """Remove what failed attempts left behind among the table's data files."""
        self._sink.file_sink().committer().clean_up(job_id, epoch, pre_commits)

    def _change(self, table: DeltaTable, batch: EpochFiles) -> TableChange:
        """A change of the table as it is now, or a refusal."""
        check_features(table, self._sink.url)
        facts = TableFacts.of(table, self._sink.url)
        for file in batch.files:
            facts.check_file(file)
        return TableChange(table, facts, self._sink.file_sink().store)


def _write(table: DeltaTable, actions: list[Action]) -> Commit:
    by = table.metadata().partition_columns
    return lambda properties: table.create_write_transaction(
        actions, "append", table.schema(), by, commit_properties=properties
    )
