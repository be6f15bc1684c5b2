"""The two kinds of snapshots that a commit makes: one appends files, one puts files in the place of others.

They differ from pyiceberg's own in two things: files may have been begun with several partition specs, and
which files go is known by their paths, not by a predicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles, _MergeAppendFiles, _SnapshotProducer

from lakestate.errors import ConflictError

_NO_PROPERTIES: dict[str, str] = {}


class AppendSnapshot(_FastAppendFiles):
    """Adds a manifest for each partition spec that files were begun with."""

    def _manifests(self) -> list[ManifestFile]:
        return self._process_manifests([*_write_manifests(self), *self._existing_manifests()])

    def _summary(self, snapshot_properties: dict[str, str] = _NO_PROPERTIES) -> Summary:
        try:
            return super()._summary(snapshot_properties)
        except OverflowError:
            return _summary_without_partitions(self, snapshot_properties)


class MergedAppendSnapshot(AppendSnapshot, _MergeAppendFiles):
    """The same, and small manifests are merged as the table's properties say."""


class ReplaceSnapshot(_SnapshotProducer["ReplaceSnapshot"]):
    """Adds files and takes away those at `removed`. Manifests that hold none of these stay as they are."""

    removed: set[str]
    shown_operation: Operation = Operation.REPLACE
    """What the summary says; to replace files is to change no rows."""

    def _manifests(self) -> list[ManifestFile]:
        return [*_write_manifests(self), *self._existing_manifests()]

    def _existing_manifests(self) -> list[ManifestFile]:
        left = set(self.removed)
        kept = []
        for manifest in self._parent_manifests():
            # Files that go were added lately, and the newest manifests come first.
            entries = self._entries(manifest) if left and manifest.content == ManifestContent.DATA else []
            gone = {entry.data_file.file_path for entry in entries} & left
            if gone:
                left -= gone
                kept.append(self._write_without(manifest, entries, gone))
            elif manifest.has_added_files() or manifest.has_existing_files():
                kept.append(manifest)
        if left:
            raise ConflictError(
                "a file that is to be replaced is not in the table", object_name=min(left), found="no entry"
            )
        return kept

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] = _NO_PROPERTIES) -> Summary:
        try:
            summary = super()._summary(snapshot_properties)
        except OverflowError:
            summary = _summary_without_partitions(self, snapshot_properties)
        # pyiceberg counts files only for operations that it makes itself.
        return Summary(operation=self.shown_operation, **summary.additional_properties)

    def _parent_manifests(self) -> list[ManifestFile]:
        parent = self._parent_snapshot_id
        snapshot = None if parent is None else self._transaction.table_metadata.snapshot_by_id(parent)
        return [] if snapshot is None else snapshot.manifests(self._io)

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return manifest.fetch_manifest_entry(self._io, discard_deleted=True)

    def _write_without(
        self, manifest: ManifestFile, entries: list[ManifestEntry], gone: set[str]
    ) -> ManifestFile:
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in entries:
                if entry.data_file.file_path in gone:
                    writer.delete(entry)
                    self._deleted_data_files.add(entry.data_file)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()


def _summary_without_partitions(snapshot: _SnapshotProducer[Any], properties: Mapping[str, str]) -> Summary:
    """The summary without a count of partitions: pyiceberg cannot spell those after the year 9999."""
    collector = SnapshotSummaryCollector()
    for file in snapshot._added_data_files:
        collector.metrics.add_file(file)
    for file in snapshot._deleted_data_files:
        collector.metrics.remove_file(file)
    metadata, parent = snapshot._transaction.table_metadata, snapshot._parent_snapshot_id
    previous = None if parent is None else metadata.snapshot_by_id(parent)
    return update_snapshot_summaries(
        Summary(operation=snapshot._operation, **collector.build(), **properties),
        None if previous is None or previous.summary is None else previous.summary.additional_properties,
    )


def _write_manifests(snapshot: _SnapshotProducer[Any]) -> list[ManifestFile]:
    files = sorted(snapshot._added_data_files, key=lambda file: file.spec_id)
    manifests = []
    for spec_id, group in groupby(files, key=lambda file: file.spec_id):
        with snapshot.new_manifest_writer(snapshot.spec(spec_id)) as writer:
            for file in group:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=snapshot.snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        manifests.append(writer.to_manifest_file())
    return manifests
