"""What a subtask reads when the operator's parallelism may have changed. Pure.

Rescaling rewrites nothing: it changes only which key range a subtask reads. A subtask reads the
metadata objects whose key range overlaps its own, and of their files the rows in that overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import OperatorEntry, SubtaskEntry, SubtaskMetadata
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import FileRef, TaskInfo


def plan_rescale(task: TaskInfo, entry: OperatorEntry) -> tuple[SubtaskEntry, ...]:
    """The subtasks of the stored epoch whose metadata the task must read for its own keys."""
    mine = task.key_range
    return tuple(subtask for subtask in entry.subtasks if subtask.key_range.overlaps(mine))


def files_for_range(mine: KeyRange, table: str, stored: Sequence[SubtaskMetadata]) -> tuple[FileRef, ...]:
    """The files of a key-ranged table that hold keys of `mine`, each clipped to what counts.

    Within one stored subtask the order, newest first, is kept. Files of different stored
    subtasks never hold the same valid key, so their order does not matter.
    """
    ordered = sorted(stored, key=lambda metadata: metadata.key_range)
    return tuple(_clipped(mine, table, ordered))


def files_of_all(table: str, stored: Sequence[SubtaskMetadata]) -> tuple[FileRef, ...]:
    """The files of a replicated table, newest first: a later (epoch, subtask) wins."""
    files = {file.path: file for metadata in stored for file in _files(metadata, table)}
    return tuple(sorted(files.values(), key=lambda file: (file.epoch, file.subtask_index), reverse=True))


def carries(task: TaskInfo, file: FileRef) -> bool:
    """True if this subtask, and no other, carries a replicated table's file forward."""
    return file.subtask_index % task.parallelism == task.subtask_index


def needs_all_subtasks(table_types: Iterable[TableType]) -> bool:
    """True if a table is replicated, so that the metadata of every subtask must be read."""
    return any(table_type.is_replicated for table_type in table_types)


def _clipped(mine: KeyRange, table: str, stored: Iterable[SubtaskMetadata]) -> Iterable[FileRef]:
    for metadata in stored:
        valid = metadata.key_range.intersection(mine)
        if valid is None:
            continue
        for file in _files(metadata, table):
            clipped = file.clipped_to(valid)
            if clipped is not None:
                yield clipped


def _files(metadata: SubtaskMetadata, table: str) -> tuple[FileRef, ...]:
    found = metadata.table(table)
    return () if found is None else found.files
