"""What a subtask reads when the operator's parallelism may have changed. Pure.

Rescaling rewrites nothing: it changes only which key range a subtask reads. A subtask reads the
metadata objects whose key range overlaps its own, and of their files the rows in that overlap.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import OperatorEntry, SubtaskEntry
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import FileRef, TaskInfo


def plan_rescale(task: TaskInfo, entry: OperatorEntry) -> tuple[SubtaskEntry, ...]:
    """The subtasks of the stored epoch whose metadata the task must read for its own keys."""
    return tuple(subtask for subtask in entry.subtasks if subtask.key_range.overlaps(task.key_range))


def clip_files(files: Iterable[FileRef], keys: KeyRange) -> tuple[FileRef, ...]:
    """The files that hold rows with these routing keys, clipped to them, in the same order.

    Files of different stored subtasks never hold the same valid key, so their order does not matter.
    """
    clipped = (file.clipped_to(keys) for file in files)
    return tuple(file for file in clipped if file is not None)


def carries(task: TaskInfo, file: FileRef) -> bool:
    """True if this subtask, and no other, carries a replicated table's file forward."""
    return file.subtask_index % task.parallelism == task.subtask_index


def needs_all_subtasks(table_types: Iterable[TableType]) -> bool:
    """True if a table is replicated, so that the metadata of every subtask must be read."""
    return any(table_type.is_replicated for table_type in table_types)
