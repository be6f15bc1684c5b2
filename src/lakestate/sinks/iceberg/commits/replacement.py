"""Which finished files can take the place of the small files that show their rows.

A small file is in the table until then, and everybody may touch it: compact it, delete rows of it. Then the
large file would bring rows back, or add them twice. It is left out: all of its rows are, or were, visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType

from lakestate.errors import CorruptionError
from lakestate.sinks.files.names import epoch_begun
from lakestate.sinks.files.pre_commit import FilePreCommit
from lakestate.sinks.iceberg.commits.progress import EPOCH, SINK, IcebergEpoch


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What an epoch's commit does with its files."""

    appended: tuple[FilePreCommit, ...] = ()
    replacing: tuple[FilePreCommit, ...] = ()
    """Each takes the place of the small files that it names."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The paths of files whose rows stay in other files, and why."""


def plan_files(table: Table, location: str, batch: IcebergEpoch) -> FilePlan:
    """What to do with the files of an epoch, in the table as it is."""
    appended = tuple(file for file in batch.files if not file.replaces)
    large = [file for file in batch.files if file.replaces]
    if not large:
        return FilePlan(appended)
    if has_partitions_by_double(table):
        return FilePlan(appended, (), {file.path: "the table has partitions by a double" for file in large})
    new_rows = {file.path: file.statistics.row_count for file in appended}
    paths = {path for file in large for path in file.replaces if path not in new_rows}
    shown = _SmallFiles.of(table, location, paths, batch.fingerprint, new_rows)
    reasons = {file.path: shown.reason_to_stay(file) for file in large}
    return FilePlan(
        appended,
        tuple(file for file in large if reasons[file.path] is None),
        {path: reason for path, reason in reasons.items() if reason is not None},
    )


@dataclass(frozen=True, slots=True)
class _SmallFiles:
    """The small files that a table holds."""

    rows: Mapping[str, int]
    """Of each one that is in the table, or that this commit adds."""
    sequence_numbers: Mapping[str, int]
    last_delete: int | None
    """The sequence number of the newest manifest with deletes; None if the table has none."""

    @classmethod
    def of(
        cls, table: Table, location: str, paths: set[str], fingerprint: str, new_rows: Mapping[str, int]
    ) -> _SmallFiles:
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
        return cls({**rows, **new_rows}, numbers, max(deletes, default=None))

    def reason_to_stay(self, file: FilePreCommit) -> str | None:
        """Why the file cannot take their place; None if it can."""
        missing = [path for path in file.replaces if path not in self.rows]
        if missing:
            return f"{missing[0]} is no longer in the table"
        numbers = [self.sequence_numbers[path] for path in file.replaces if path in self.sequence_numbers]
        if self.last_delete is not None and numbers and self.last_delete >= min(numbers):
            return "rows of the table have been deleted since"
        rows, expected = sum(self.rows[path] for path in file.replaces), file.statistics.row_count
        if rows < expected:
            raise CorruptionError(
                "small files in the table hold fewer rows than the file that is to take their place",
                object_name=file.path,
                found=f"{rows} rows in {len(file.replaces)} files",
                expected=f"{expected} rows",
            )
        # After going back to an earlier epoch, a small file may hold rows of epochs that were given up.
        return None if rows == expected else f"they hold {rows:,} rows, and it holds {expected:,}"


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
