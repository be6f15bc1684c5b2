"""Restores a subtask from an epoch: which metadata it reads, and which files it takes from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compatibility import Incompatible, evolve
from lakestate.protocol.metadata import Manifest, SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.values import Epoch, ObjectRef, TaskInfo
from lakestate.tables.contract import Table
from lakestate.tables.registry import merge_table, subtask_part
from lakestate.tables.stored_operator import ShippedOperator, StoredOperator, parts_of, read_operator

_NEW_OPERATOR = "pass allow_new_operator=True to begin a new operator with empty state"


@dataclass(frozen=True)
class RestoredSubtask:
    """A subtask's part of an epoch."""

    files: dict[str, TableFiles]
    configs: dict[str, TableConfig]
    """The declarations, with what is remembered of earlier ones."""
    epoch: Epoch | None = None
    watermark_us: int | None = None
    previous: tuple[ObjectRef, SubtaskMetadata] | None = None
    """This subtask's own metadata object, if the parallelism did not change; see `digest_commit_data`."""


def empty_subtask(tables: Sequence[Table]) -> RestoredSubtask:
    """Empty state."""
    files = {table.name: _no_files(table) for table in tables}
    return RestoredSubtask(files, {table.name: table.config for table in tables})


def new_subtask(tables: Sequence[Table], manifest: Manifest) -> RestoredSubtask:
    """Empty state of an operator that begins after an epoch of its job."""
    return replace(empty_subtask(tables), epoch=manifest.epoch, watermark_us=manifest.watermark_us)


def restore_subtask(
    task: TaskInfo,
    tables: Sequence[Table],
    manifest: Manifest,
    objects: JobObjects,
    drop: Collection[str],
    shipped: ShippedOperator | None = None,
) -> RestoredSubtask:
    """A subtask's part of an epoch, regardless of the parallelism that the epoch was written with.

    Every table is checked before any is opened: nothing is half-restored. `shipped` is the metadata of
    the operator in this epoch, if somebody has it; otherwise it is read.
    """
    entry = manifest.require_operator(task.operator_id, _NEW_OPERATOR)
    stored = (
        read_operator(entry, task, tables, objects) if shipped is None else shipped.open(entry, task, objects)
    )
    where = f"operator {task.operator_id} in epoch {manifest.epoch} of job {task.job_id}"
    _check_all_declared(stored.configs, tables, drop, where)
    files = {table.name: _files_of_table(table, stored, task, where) for table in tables}
    configs = {
        table.name: evolve(stored.configs.get(table.name, table.config), table.config) for table in tables
    }
    own = next(
        (
            (item.metadata, metadata)
            for item, metadata in stored.subtasks
            if (metadata.subtask_index, metadata.parallelism) == (task.subtask_index, task.parallelism)
        ),
        None,
    )
    watermark_us = entry.watermark_us if entry.watermark_us is not None else manifest.watermark_us
    return RestoredSubtask(files, configs, manifest.epoch, watermark_us, own)


def _files_of_table(table: Table, stored: StoredOperator, task: TaskInfo, where: str) -> TableFiles:
    """The subtask's part of a table.

    Of a table that is not replicated, only the subtasks with keys of this one count: the expiry times
    of the others do not apply to it.
    """
    config = stored.configs.get(table.name)
    if config is None:
        return _no_files(table)
    check_compatible(table, config, where)
    merged = stored.replicated.get(table.name)
    if merged is None:
        parts = parts_of(table.name, (metadata for _, metadata in stored.subtasks))
        merged = merge_table(table.config, parts)
    return subtask_part(table.config, merged, task)


def check_compatible(table: Table, stored: TableConfig, where: str) -> None:
    """Refuse a declaration that cannot read what is stored."""
    decision = table.compatibility_with(stored)
    if isinstance(decision, Incompatible):
        raise IncompatibleStateError(
            f"table {table.name} cannot read its stored state",
            object_name=where,
            found="; ".join(decision.reasons),
            action="declare the table as it is stored, or how it is migrated; nothing was read or changed",
        )


def _check_all_declared(
    configs: Mapping[str, TableConfig], tables: Sequence[Table], drop: Collection[str], where: str
) -> None:
    kept = sorted({table.name for table in tables}.intersection(drop))
    if kept:
        raise InvalidInputError(
            "tables to drop are still declared",
            object_name=where,
            found=", ".join(kept),
            action="remove their declarations, or remove them from drop",
        )
    forgotten = sorted(configs.keys() - {table.name for table in tables} - set(drop))
    if forgotten:
        raise IncompatibleStateError(
            "stored tables are no longer declared",
            object_name=where,
            found=", ".join(forgotten),
            expected=", ".join(sorted(table.name for table in tables)) or "no table",
            action=f"declare them, or drop their state with drop={forgotten}",
        )


def _no_files(table: Table) -> TableFiles:
    return TableFiles(table.name, table.table_type)
