"""Tries declared tables on a real checkpoint, and reports what would fail, before anything starts.

Reads metadata and every data file of an older state version, runs the migrations, and discards the
result. Nothing is written, not even to the run cache. State that cannot be read is a line in the
report, not an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compatibility import Incompatible
from lakestate.protocol.metadata import Manifest, SubtaskEntry, SubtaskMetadata, TableConfig
from lakestate.protocol.values import FileRef
from lakestate.tables.contract import Table
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.parquet import decode_run

NOT_DECLARED = "stored, but no longer declared"
"""The reason of a problem that dropping the table solves."""

_STATE_ERRORS = (CorruptionError, IncompatibleStateError, InvalidInputError)


@dataclass(frozen=True, slots=True)
class DryRunProblem:
    """Something that keeps a table from being restored. `table` is None if it affects all tables.

    >>> print(DryRunProblem("users", "checkpoints/3/operator-op/users-0-a1.parquet", "no migration"))
    table users: checkpoints/3/operator-op/users-0-a1.parquet: no migration
    """

    table: str | None
    object_name: str
    reason: str

    def __str__(self) -> str:
        head = "all tables" if self.table is None else f"table {self.table}"
        return f"{head}: {self.object_name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class DryRunReport:
    """What a dry run has read and found.

    >>> DryRunReport(checked_files=2, migrated_rows=10).is_clean
    True
    """

    checked_files: int = 0
    """Data files of older state versions that were read."""
    migrated_rows: int = 0
    """Rows that were brought to the declared version."""
    problems: tuple[DryRunProblem, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True if restoring would work."""
        return not self.problems


def dry_run(
    tables: Sequence[Table],
    manifest: Manifest,
    operator_id: str,
    objects: JobObjects,
    *,
    drop: Collection[str] = (),
) -> DryRunReport:
    """Try to read an operator's state of an epoch with the declared tables.

    `drop` names stored tables whose state will be dropped. Raises NotFoundError if the epoch
    has no such operator, and StorageUnavailableError if the store does not answer.
    """
    entry = manifest.require_operator(operator_id)
    subtasks, problems = _read_subtasks(entry.subtasks, objects)
    found = _Findings(objects, problems)
    _check_all_declared(tables, subtasks, drop, found)
    for table in tables:
        if _check_configs(table, subtasks, found):
            for file in _older_files(table, subtasks.values()):
                _check_file(table, file, found)
    return DryRunReport(found.checked_files, found.migrated_rows, tuple(found.problems))


class _Findings:
    """A report while it is being written."""

    def __init__(self, objects: JobObjects, problems: list[DryRunProblem]) -> None:
        self.objects = objects
        self.problems = problems
        self.checked_files = 0
        self.migrated_rows = 0


def _read_subtasks(
    entries: Sequence[SubtaskEntry], objects: JobObjects
) -> tuple[dict[str, SubtaskMetadata], list[DryRunProblem]]:
    """The metadata of all subtasks by the name of its object, and those that cannot be read."""
    names = [objects.url_of(entry.metadata.path) for entry in entries]
    try:
        return dict(zip(names, objects.read_subtasks(entries), strict=True)), []
    except _STATE_ERRORS:
        # Reading all at once is fast but stops at the first error. Read one by one to name every bad one.
        return _read_one_by_one(entries, names, objects)


def _read_one_by_one(
    entries: Sequence[SubtaskEntry], names: Sequence[str], objects: JobObjects
) -> tuple[dict[str, SubtaskMetadata], list[DryRunProblem]]:
    found: dict[str, SubtaskMetadata] = {}
    problems: list[DryRunProblem] = []
    for name, entry in zip(names, entries, strict=True):
        try:
            found[name] = objects.read_subtasks([entry])[0]
        except _STATE_ERRORS as error:
            problems.append(DryRunProblem(None, name, str(error)))
    return found, problems


def _check_all_declared(
    tables: Sequence[Table], subtasks: dict[str, SubtaskMetadata], drop: Collection[str], found: _Findings
) -> None:
    known = {*drop, *(table.name for table in tables)}
    for name, metadata in subtasks.items():
        for config in metadata.configs:
            if config.name not in known:
                known.add(config.name)
                found.problems.append(DryRunProblem(config.name, name, NOT_DECLARED))


def _check_configs(table: Table, subtasks: dict[str, SubtaskMetadata], found: _Findings) -> bool:
    """Compare the declaration with each stored one. True if all can be read."""
    seen: list[TableConfig] = []
    fits = True
    for name, metadata in subtasks.items():
        stored = metadata.config(table.name)
        if stored is None or stored in seen:
            continue
        seen.append(stored)
        decision = table.compatibility_with(stored)
        if isinstance(decision, Incompatible):
            fits = False
            found.problems += [DryRunProblem(table.name, name, reason) for reason in decision.reasons]
    return fits


def _older_files(table: Table, subtasks: Iterable[SubtaskMetadata]) -> Iterator[FileRef]:
    """The files of another version, each once: after rescaling several subtasks refer to one."""
    seen: set[str] = set()
    for metadata in subtasks:
        stored = metadata.table(table.name)
        for file in () if stored is None else stored.files:
            if file.state_version != table.config.state_version and file.path not in seen:
                seen.add(file.path)
                yield file


def _check_file(table: Table, file: FileRef, found: _Findings) -> None:
    shown = found.objects.url_of(file.path)
    found.checked_files += 1
    try:
        found.migrated_rows += _count_migrated_rows(table, file, shown, found.objects)
    except _STATE_ERRORS as error:
        found.problems.append(DryRunProblem(table.name, shown, str(error)))


def _count_migrated_rows(table: Table, file: FileRef, shown: str, objects: JobObjects) -> int:
    rows = decode_run(pa.py_buffer(objects.read_verified(file.object_ref)), shown, file.row_count)
    identity = CheckpointParquetMetadata.from_key_values(rows.schema.metadata, shown)
    identity.check(table.config, shown)
    return table.check_rows(rows, identity, shown)
