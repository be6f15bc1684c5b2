"""One change of an Iceberg table: files and properties in a single commit, tried exactly once.

pyiceberg's own transaction retries after a conflict without checking whether another process has
committed the epoch meanwhile; rows would be in the table twice. So nothing is retried here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.utils.properties import property_as_bool

from lakestate.sinks.files.pre_commit import FilePreCommit
from lakestate.sinks.iceberg.commits.data_files import data_file
from lakestate.sinks.iceberg.commits.replacement import has_partitions_by_double
from lakestate.sinks.iceberg.commits.snapshots import AppendSnapshot, MergedAppendSnapshot, ReplaceSnapshot
from lakestate.sinks.table_format.replacement import FilePlan


class TableChange:
    """A change that is prepared for a table as it was loaded.

    Rows that readers could not see before are appended by a first snapshot. If files take the place of small
    ones, a second one does that: it changes no rows, so that whoever reads only what was appended gets each
    row once. Both are one commit.
    """

    def __init__(
        self,
        table: Table,
        plan: FilePlan,
        location: str,
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> None:
        self._table = table
        self._plan = plan
        self._location = location
        self._properties = dict(properties)
        self._summary = dict(summary)
        self._written: list[AppendSnapshot | ReplaceSnapshot] = []

    def commit(self) -> None:
        """Commit, if the table's main branch is still where it was. Raises what the catalog raises."""
        commit_updates(self._table, self._properties, self._snapshots())

    def discard(self) -> None:
        """Remove the manifests of a change that is known not to have happened."""
        for each in self._written:
            each._clean_all_uncommitted()

    def _snapshots(self) -> tuple[TableUpdate, ...]:
        transaction = self._table.transaction()
        if self._plan.appended:
            kind = MergedAppendSnapshot if _merges_manifests(self._table) else AppendSnapshot
            append = kind(Operation.APPEND, transaction, self._table.io, snapshot_properties=self._summary)
            self._write(append, self._plan.appended, transaction)
        if self._plan.replacing:
            replace = ReplaceSnapshot(
                Operation.OVERWRITE, transaction, self._table.io, snapshot_properties=self._summary
            )
            paths = (path for file in self._plan.replacing for path in file.replaces)
            replace.removed = {f"{self._location}/{path}" for path in paths}
            self._write(replace, self._plan.replacing, transaction)
        return transaction._updates

    def _write(
        self,
        snapshot: AppendSnapshot | ReplaceSnapshot,
        files: tuple[FilePreCommit, ...],
        transaction: Transaction,
    ) -> None:
        """Write the manifests of a snapshot, and let the transaction continue from it."""
        self._written.append(snapshot)
        for file in files:
            snapshot.append_data_file(data_file(file, self._table, self._location))
        updates, _ = snapshot._commit()
        transaction._stage(updates)


def commit_updates(table: Table, properties: Mapping[str, str], updates: Iterable[TableUpdate]) -> None:
    """Commit once, if the table's main branch is still where it was. Raises what the catalog raises."""
    main = table.metadata.refs.get(MAIN_BRANCH)
    requirements: tuple[TableRequirement, ...] = (
        AssertRefSnapshotId.model_validate(
            {"snapshot-id": None if main is None else main.snapshot_id, "ref": MAIN_BRANCH}
        ),
        AssertTableUUID(uuid=table.metadata.table_uuid),
    )
    recorded = (SetPropertiesUpdate(updates=dict(properties)),) if properties else ()
    table._do_commit((*recorded, *updates), requirements)


def _merges_manifests(table: Table) -> bool:
    """Whether the table wants small manifests merged, and they can be."""
    wanted = property_as_bool(
        table.properties,
        TableProperties.MANIFEST_MERGE_ENABLED,
        TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
    )
    return wanted and not has_partitions_by_double(table)
