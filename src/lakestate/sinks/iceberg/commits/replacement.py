"""What an epoch does with its files in a table as it is: which small ones are still there as they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType

from lakestate.sinks.files.names import epoch_begun
from lakestate.sinks.files.pre_commit import FilePreCommit
from lakestate.sinks.iceberg.commits.progress import EPOCH, SINK, IcebergEpoch
from lakestate.sinks.table_format.replacement import FilePlan, SmallFiles


def plan_files(table: Table, location: str, batch: IcebergEpoch) -> FilePlan:
    """What to do with the files of an epoch, in the table as it is."""
    if has_partitions_by_double(table):
        appended = tuple(file for file in batch.files if not file.replaces)
        large = (file.path for file in batch.files if file.replaces)
        return FilePlan(appended, (), dict.fromkeys(large, "the table has partitions by a double"))
    return FilePlan.of(
        batch.files, lambda paths: _IcebergSmallFiles.of(table, location, paths, batch.fingerprint)
    )


@dataclass(frozen=True, slots=True)
class _IcebergSmallFiles(SmallFiles):
    """Deletes may be in files of their own, which are newer than the small files."""

    sequence_numbers: Mapping[str, int]
    last_delete: int | None
    """The sequence number of the newest manifest with deletes; None if the table has none."""

    @classmethod
    def of(cls, table: Table, location: str, paths: set[str], fingerprint: str) -> _IcebergSmallFiles:
        """Look for them in the current snapshot."""
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        deletes = [
            manifest.sequence_number
            for manifest in manifests
            if manifest.content == ManifestContent.DELETES and _is_alive(manifest)
        ]
        oldest = _newest_before(table.metadata, fingerprint, paths)
        data = [
            manifest
            for manifest in manifests
            if manifest.content == ManifestContent.DATA
            and _is_alive(manifest)
            and (table.metadata.format_version == 1 or manifest.sequence_number > oldest)
        ]
        found = _find_entries(table, data, {f"{location}/{path}" for path in paths})
        known = {entry.data_file.file_path.removeprefix(f"{location}/"): entry for entry in found}
        rows = {path: entry.data_file.record_count for path, entry in known.items()}
        numbers = {path: entry.sequence_number or 0 for path, entry in known.items()}
        return cls(rows, numbers, max(deletes, default=None))

    def reason_touched(self, file: FilePreCommit) -> str | None:
        """Deletes that are newer than the oldest of its small files."""
        numbers = [self.sequence_numbers[path] for path in file.replaces if path in self.sequence_numbers]
        is_newer = self.last_delete is not None and numbers and self.last_delete >= min(numbers)
        return "rows of the table have been deleted since" if is_newer else None


def has_partitions_by_double(table: Table) -> bool:
    """Whether any partition spec, current or old, uses a column that is or was a double.

    pyiceberg reads a double in a manifest as if it had 32 bits (apache/iceberg-python#3808). A manifest that
    is written again would have it rounded, and readers would no longer find the rows of that partition.
    """
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    return any(
        schema.find_column_name(source) is not None and isinstance(schema.find_type(source), DoubleType)
        for schema in table.schemas().values()
        for source in sources
    )


def _find_entries(table: Table, manifests: Iterable[ManifestFile], wanted: set[str]) -> list[ManifestEntry]:
    """The entries of files, from the newest manifests on: small files were added lately."""
    found: list[ManifestEntry] = []
    for manifest in manifests:
        if len(found) == len(wanted):
            break
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        found += [entry for entry in entries if entry.data_file.file_path in wanted]
    return found


def _newest_before(metadata: TableMetadata, fingerprint: str, paths: set[str]) -> int:
    """The sequence number of a snapshot of this sink from before the small files were begun; -1 if unknown.

    No manifest that is as old can hold them, and reading all manifests of a large table would take long.
    """
    begun = min((epoch_begun(path, fingerprint) or 0 for path in paths), default=0)
    summaries = (
        (each.sequence_number, each.summary.additional_properties)
        for each in metadata.snapshots
        if each.summary is not None
    )
    return max(
        (
            number or 0
            for number, summary in summaries
            if summary.get(SINK) == fingerprint and int(summary.get(EPOCH, begun)) < begun
        ),
        default=-1,
    )


def _is_alive(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()
