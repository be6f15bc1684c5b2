"""Restores a subtask from an epoch: which metadata it reads, and which files it takes from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lakestate.errors import IncompatibleStateError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compatibility import Incompatible
from lakestate.protocol.metadata import Manifest, SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.rescale import needs_all_subtasks, plan_rescale
from lakestate.protocol.values import Epoch, ObjectRef, TaskInfo
from lakestate.tables.contract import Table
from lakestate.tables.registry import merge_table, subtask_part

_NEW_OPERATOR = "pass allow_new_operator=True to begin a new operator with empty state"


@dataclass(frozen=True)
class RestoredSubtask:
    """A subtask's part of an epoch."""

    files: dict[str, TableFiles]
    epoch: Epoch | None = None
    watermark_us: int | None = None
    previous: tuple[ObjectRef, SubtaskMetadata] | None = None
    """This subtask's own metadata object, if the parallelism did not change."""


def empty_subtask(tables: Sequence[Table]) -> RestoredSubtask:
    """Empty state."""
    return RestoredSubtask({table.name: _no_files(table) for table in tables})


def new_subtask(tables: Sequence[Table], manifest: Manifest) -> RestoredSubtask:
    """Empty state of an operator that begins after an epoch of its job."""
    return replace(empty_subtask(tables), epoch=manifest.epoch, watermark_us=manifest.watermark_us)


def restore_subtask(
    task: TaskInfo, tables: Sequence[Table], manifest: Manifest, objects: JobObjects, drop: Collection[str]
) -> RestoredSubtask:
    """A subtask's part of an epoch, regardless of the parallelism that the epoch was written with.

    Every table is checked before any is opened: nothing is half-restored.
    """
    entry = manifest.require_operator(task.operator_id, _NEW_OPERATOR)
    wanted = plan_rescale(task, entry)
    if needs_all_subtasks(table.table_type for table in tables):
        wanted = entry.subtasks
    stored = objects.read_subtasks(wanted)
    configs = _stored_configs(stored)
    where = f"operator {task.operator_id} in epoch {manifest.epoch} of job {task.job_id}"
    _check_all_declared(configs, tables, drop, where)
    files = {
        table.name: _files_of_table(table, configs.get(table.name), stored, task, where) for table in tables
    }
    own = next(
        (
            (item.metadata, metadata)
            for item, metadata in zip(wanted, stored, strict=True)
            if (metadata.subtask_index, metadata.parallelism) == (task.subtask_index, task.parallelism)
        ),
        None,
    )
    watermark_us = entry.watermark_us if entry.watermark_us is not None else manifest.watermark_us
    return RestoredSubtask(files, manifest.epoch, watermark_us, own)


def _files_of_table(
    table: Table, stored: TableConfig | None, subtasks: Sequence[SubtaskMetadata], task: TaskInfo, where: str
) -> TableFiles:
    if stored is None:
        return _no_files(table)
    check_compatible(table, stored, where)
    parts = {
        metadata.subtask_index: files
        for metadata in subtasks
        if _has_part(metadata, table, task) and (files := metadata.table(table.name)) is not None
    }
    return subtask_part(table.config, merge_table(table.config, parts), task)


def _has_part(metadata: SubtaskMetadata, table: Table, task: TaskInfo) -> bool:
    """True if a stored subtask's part of a table belongs to this subtask too.

    If any table is replicated, the metadata of all subtasks is read. The expiry times of a subtask with
    other keys do not apply to this one.
    """
    return needs_all_subtasks([table.table_type]) or metadata.key_range.overlaps(task.key_range)


def check_compatible(table: Table, stored: TableConfig, where: str) -> None:
    """Refuse a declaration that cannot read what is stored."""
    decision = table.compatibility_with(stored)
    if isinstance(decision, Incompatible):
        raise IncompatibleStateError(
            f"table {table.name} cannot read its stored state",
            object_name=where,
            found="; ".join(decision.reasons),
            action="nothing was read or changed",
        )


def _stored_configs(stored: Sequence[SubtaskMetadata]) -> dict[str, TableConfig]:
    """The stored declarations; of several versions the newest, which is the hardest to read."""
    configs: dict[str, TableConfig] = {}
    for metadata in stored:
        for config in metadata.configs:
            known = configs.get(config.name)
            if known is None or config.state_version > known.state_version:
                configs[config.name] = config
    return configs


def _check_all_declared(
    configs: dict[str, TableConfig], tables: Sequence[Table], drop: Collection[str], where: str
) -> None:
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
