"""One append to an Iceberg table: files and properties in a single commit, tried exactly once.

pyiceberg's own transaction retries after a conflict without checking whether another process has
committed the epoch meanwhile; rows would be in the table twice. So nothing is retried here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles, _MergeAppendFiles
from pyiceberg.types import DoubleType
from pyiceberg.utils.properties import property_as_bool

_NO_PROPERTIES: dict[str, str] = {}


class _FastAppend(_FastAppendFiles):
    """Adds a manifest for each partition spec that files were begun with."""

    def _manifests(self) -> list[ManifestFile]:
        return self._process_manifests([*_write_manifests(self), *self._existing_manifests()])

    def _summary(self, snapshot_properties: dict[str, str] = _NO_PROPERTIES) -> Summary:
        try:
            return super()._summary(snapshot_properties)
        except OverflowError:
            return _summary_without_partitions(self, snapshot_properties)


class _MergeAppend(_FastAppend, _MergeAppendFiles):
    """The same, and small manifests are merged as the table's properties say."""


class TableAppend:
    """An append that is prepared for a table as it was loaded."""

    def __init__(
        self,
        table: Table,
        files: Iterable[DataFile],
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> None:
        self._table = table
        self._properties = dict(properties)
        kind = _MergeAppend if _merges_manifests(table) else _FastAppend
        self._producer = kind(
            Operation.APPEND, table.transaction(), table.io, snapshot_properties=dict(summary)
        )
        for file in files:
            self._producer.append_data_file(file)

    def commit(self) -> None:
        """Commit, if the table's main branch is still where it was. Raises what the catalog raises."""
        updates, requirements = self._producer._commit()
        uuid = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        self._table._do_commit(
            (SetPropertiesUpdate(updates=self._properties), *updates), (*requirements, uuid)
        )

    def discard(self) -> None:
        """Remove the manifests of an append that is known not to have happened."""
        self._producer._clean_all_uncommitted()


def _merges_manifests(table: Table) -> bool:
    """Whether the table wants small manifests merged, and they can be.

    pyiceberg reads a double in a manifest as if it had 32 bits (apache/iceberg-python#3808). Merging
    would write it back rounded, and readers would no longer find the rows of that partition.
    """
    wanted = property_as_bool(
        table.properties,
        TableProperties.MANIFEST_MERGE_ENABLED,
        TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
    )
    return wanted and not _has_partitions_by_double(table)


def _has_partitions_by_double(table: Table) -> bool:
    """Whether any partition spec, current or old, uses a column that is or was a double."""
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    return any(
        schema.find_column_name(source) is not None and isinstance(schema.find_type(source), DoubleType)
        for schema in table.schemas().values()
        for source in sources
    )


def _summary_without_partitions(append: _FastAppendFiles, properties: Mapping[str, str]) -> Summary:
    """The summary without a count of partitions: pyiceberg cannot spell those after the year 9999."""
    collector = SnapshotSummaryCollector()
    for file in append._added_data_files:
        collector.metrics.add_file(file)
    metadata, parent = append._transaction.table_metadata, append._parent_snapshot_id
    previous = None if parent is None else metadata.snapshot_by_id(parent)
    return update_snapshot_summaries(
        Summary(operation=append._operation, **collector.build(), **properties),
        None if previous is None or previous.summary is None else previous.summary.additional_properties,
    )


def _write_manifests(append: _FastAppendFiles) -> list[ManifestFile]:
    files = sorted(append._added_data_files, key=lambda file: file.spec_id)
    manifests = []
    for spec_id, group in groupby(files, key=lambda file: file.spec_id):
        with append.new_manifest_writer(append.spec(spec_id)) as writer:
            for file in group:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=append.snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        manifests.append(writer.to_manifest_file())
    return manifests
