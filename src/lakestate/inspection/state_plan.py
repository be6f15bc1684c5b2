"""What a new version of the code would do to stored state, table by table. Nothing is read but metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from lakestate.job.objects import JobObjects
from lakestate.protocol.compatibility import Compatible, Incompatible, NeedsMigration
from lakestate.protocol.metadata import Manifest, SubtaskMetadata
from lakestate.protocol.values import FileRef
from lakestate.tables.contract import Table


class Outcome(Enum):
    """What becomes of a table."""

    UNCHANGED = "unchanged"
    MIGRATED = "migrated"
    NEW = "new"
    DROPPED = "dropped"
    REFUSED = "refused"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What becomes of one table when a pipeline with these declarations starts."""

    operator: str
    table: str
    outcome: Outcome
    stored_version: int | None = None
    declared_version: int | None = None
    size_bytes: int = 0
    """What is stored of it."""
    rewritten_bytes: int = 0
    """Files of older versions: migrated whenever they are read, until compaction has rewritten them."""
    reason: str | None = None


def plan_tables(
    declared: Mapping[str, Sequence[Table]],
    manifest: Manifest | None,
    objects: JobObjects,
    drop: Collection[str] = (),
) -> list[TablePlan]:
    """Compare declared tables, by operator, with those of an epoch.

    `drop` names operators and `operator.table`s whose state is given up.
    """
    found: list[TablePlan] = []
    stored = {} if manifest is None else {entry.operator_id: entry for entry in manifest.operators}
    for operator, tables in declared.items():
        entry = stored.get(operator)
        metadata = [] if entry is None else objects.read_subtasks(entry.subtasks)
        found += _plan_operator(operator, tables, metadata, drop)
    for operator, entry in stored.items():
        if operator not in declared:
            found += _plan_operator(operator, (), objects.read_subtasks(entry.subtasks), drop)
    return found


def _plan_operator(
    operator: str, tables: Sequence[Table], stored: Sequence[SubtaskMetadata], drop: Collection[str]
) -> Iterator[TablePlan]:
    for table in tables:
        yield _plan_table(operator, table, stored)
    names = {config.name for metadata in stored for config in metadata.configs}
    for name in sorted(names - {table.name for table in tables}):
        is_dropped = operator in drop or f"{operator}.{name}" in drop
        outcome = Outcome.DROPPED if is_dropped else Outcome.REFUSED
        reason = (
            None if is_dropped else f"stored, but no longer declared: put it back, or drop {operator}.{name}"
        )
        size_bytes = sum(file.size_bytes for file in _files(name, stored))
        yield TablePlan(operator, name, outcome, _version(name, stored), None, size_bytes, 0, reason)


def _plan_table(operator: str, table: Table, stored: Sequence[SubtaskMetadata]) -> TablePlan:
    declared_version = table.config.state_version
    configs = [config for metadata in stored if (config := metadata.config(table.name)) is not None]
    if not configs:
        return TablePlan(operator, table.name, Outcome.NEW, None, declared_version)
    files = _files(table.name, stored)
    older = sum(file.size_bytes for file in files if file.state_version != declared_version)
    outcome, reasons = Outcome.MIGRATED if older else Outcome.UNCHANGED, list[str]()
    for config in configs:
        decision = table.compatibility_with(config)
        match decision:
            case Incompatible(found):
                outcome, reasons = (
                    Outcome.REFUSED,
                    [*reasons, *(each for each in found if each not in reasons)],
                )
            case NeedsMigration():
                outcome = Outcome.REFUSED if reasons else Outcome.MIGRATED
            case Compatible():
                pass
            case _:
                assert_never(decision)
    return TablePlan(
        operator,
        table.name,
        outcome,
        _version(table.name, stored),
        declared_version,
        sum(file.size_bytes for file in files),
        0 if reasons else older,
        "; ".join(reasons) or None,
    )


def _files(name: str, stored: Sequence[SubtaskMetadata]) -> list[FileRef]:
    """The files of a table, each once: after rescaling several subtasks refer to one."""
    parts = [part for metadata in stored if (part := metadata.table(name)) is not None]
    return list({file.path: file for part in parts for file in part.files}.values())


def _version(name: str, stored: Sequence[SubtaskMetadata]) -> int | None:
    return max(
        (c.state_version for metadata in stored if (c := metadata.config(name)) is not None), default=None
    )
