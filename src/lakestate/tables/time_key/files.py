"""The stored files of a `TimeKeyTable`: which of their rows have expired, and when a file is dropped.

A subtask has one floor, the time before which all its rows have expired. It only rises. Each reference
carries the floor of the subtask that last held it, so that a row that expired in one subtask does not
return in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakestate.protocol.compaction import CompactionPolicy, plan_compaction
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles, swap_in
from lakestate.tables.runs.checkpointer import RunCheckpointer
from lakestate.tables.runs.compaction import write_pieces
from lakestate.tables.runs.files import Upgrade, open_run
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.parquet import long_columns
from lakestate.tables.runs.run_set import files_of_subtask, raise_valid_from
from lakestate.tables.time_key.runs import TIME_MIN_US, TimeSpan, merge_time_slices


def retained_from_us(config: TableConfig, context: TableContext) -> int | None:
    """The time before which rows have expired because the watermark is far enough ahead of them."""
    if config.retention_us is None or context.watermark_us is None:
        return None
    return max(TIME_MIN_US, context.watermark_us - config.retention_us)


def later_us(one: int | None, other: int | None) -> int | None:
    """The later of two times; None is earlier than any time."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def expire_files(files: TableFiles, before_us: int | None) -> TableFiles:
    """The files with every row before a time expired. Files without other rows are dropped.

    From anywhere in the list: unlike rows of a `KeyedTable`, these hide nothing.
    """
    stamped = (raise_valid_from(file, before_us) for file in files.files)
    alive = tuple(file for file in stamped if not is_dead(file))
    return replace(files, files=alive, expired_before_us=later_us(files.expired_before_us, before_us))


def apply_retention(files: TableFiles, before_us: int | None) -> TableFiles:
    """The same, but unchanged if no row expires, so that equal metadata is not written again."""
    if before_us is None or not any(_loses_rows(file, before_us) for file in files.files):
        return files
    return expire_files(files, before_us)


def is_dead(file: FileRef) -> bool:
    """True if all rows of a file have expired."""
    return not TimeSpan().since(file.valid_from_us).overlaps(file.times)


def _loses_rows(file: FileRef, before_us: int) -> bool:
    return TimeSpan(before_us=before_us).since(file.valid_from_us).overlaps(file.times)


def merge_files(config: TableConfig, parts: Iterable[TableFiles]) -> TableFiles:
    """The files of several subtasks, under the lowest of their floors.

    Every reference gets its own subtask's floor first, so that the lower common floor revives no row;
    it only affects rows that are still to come. No row that some part would accept is lost; a row that
    is too late for its own part, but not for another, is accepted.
    """
    held = [expire_files(part, part.expired_before_us) for part in parts]
    floors = [part.expired_before_us for part in held if part.expired_before_us is not None]
    lowest = min(floors) if floors and len(floors) == len(held) else None
    files = tuple(file for part in held for file in part.files)
    return TableFiles(config.name, config.table_type, files, expired_before_us=lowest)


class TimeKeyCheckpointer(RunCheckpointer):
    """Writes new runs in front of those with rows that have not expired."""

    def __init__(self, layout: RunLayout, epoch: Epoch, previous: TableFiles, context: TableContext) -> None:
        self.retained_from_us = retained_from_us(layout.config, context)
        """The time before which rows expire with this epoch."""
        mine = replace(previous, files=files_of_subtask(previous.files, context))
        super().__init__(layout, epoch, apply_retention(mine, self.retained_from_us), context)

    def expire(self, before_us: int | None) -> None:
        """Carry no row before a time."""
        self._carried = expire_files(self._carried, before_us)


def compact_time_runs(
    layout: RunLayout,
    files: TableFiles,
    policy: CompactionPolicy,
    epoch: Epoch,
    context: TableContext,
    upgrade: Upgrade | None,
) -> CompactedFiles | None:
    """Merge the group of runs that the policy picks, without expired rows. None if it picks none."""
    plan = plan_compaction([file.size_bytes for file in files.files], policy)
    if plan is None:
        return None
    group = files.files[plan.start : plan.stop]
    floor_us = later_us(files.expired_before_us, retained_from_us(layout.config, context))
    held = [raise_valid_from(file, floor_us) for file in group]
    parts = [
        (open_run(file, layout, context, upgrade), TimeSpan().since(file.valid_from_us))
        for file in held
        if not is_dead(file)
    ]
    rows = merge_time_slices(parts, layout)
    long = long_columns(run.rows for run, _ in parts)
    file = write_pieces(rows, layout, context, epoch, long)
    return CompactedFiles(files.table, group, () if file is None else (file,))


def swap_in_live_files(files: TableFiles, compacted: CompactedFiles) -> TableFiles:
    """The files with a merge swapped in. Rows that expired since the merge began stay expired.

    A replaced file may be gone because all its rows expired. If it is gone for another reason, its
    rows are stored elsewhere, and the merge is dropped: otherwise they would exist twice.
    """
    held = {(file.path, file.valid_keys): file for file in files.files}
    now = [held.get((file.path, file.valid_keys)) for file in compacted.replaced]
    raised_us = _raised_floor_us(compacted.replaced, now)
    dead_before_us = later_us(files.expired_before_us, raised_us)
    gone = (file for file, there in zip(compacted.replaced, now, strict=True) if there is None)
    left = tuple(file for file in now if file is not None)
    if not left or not all(is_dead(raise_valid_from(file, dead_before_us)) for file in gone):
        return files
    stamped = (raise_valid_from(file, raised_us) for file in compacted.merged)
    merged = tuple(file for file in stamped if not is_dead(file))
    return swap_in(files, replace(compacted, replaced=left, merged=merged))


def _raised_floor_us(before: Sequence[FileRef], now: Sequence[FileRef | None]) -> int | None:
    """The floor that references got since then, or None. All of them got the same."""
    floors = [
        there.valid_from_us
        for file, there in zip(before, now, strict=True)
        if there is not None and there.valid_from_us is not None and there != file
    ]
    return max(floors, default=None)
