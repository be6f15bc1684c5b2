"""The stored files of a `TimeKeyTable`: which of their rows have expired, and when a file is dropped.

A subtask has one floor, the time before which all its rows have expired. It only rises. Each reference
carries the floor of the subtask that last held it, so that a row that expired in one subtask does not
return in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles, swap_in
from lakestate.tables.runs.checkpointer import RunCheckpointer
from lakestate.tables.runs.files import write_run
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.run_set import files_of_subtask, raise_valid_from
from lakestate.tables.time_key.deletes import drop_needless, is_deletes, may_hide
from lakestate.tables.time_key.runs import TIME_MIN_US, TimeSpan
from lakestate.tables.writers import submit_write


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
    stamped = (file if is_deletes(file) else raise_valid_from(file, before_us) for file in files.files)
    alive = drop_needless([file for file in stamped if not is_dead(file)])
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
    return not is_deletes(file) and TimeSpan(before_us=before_us).since(file.valid_from_us).overlaps(
        file.times
    )


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
        mine = replace(previous, files=drop_needless(files_of_subtask(previous.files, context)))
        super().__init__(layout, epoch, apply_retention(mine, self.retained_from_us), context)

    def expire(self, before_us: int | None) -> None:
        """Carry no row before a time."""
        self._carried = expire_files(self._carried, before_us)

    def _can_absorb(self, file: FileRef) -> bool:
        return not is_deletes(file) and super()._can_absorb(file)

    def delete_keys(self, deleted: Run) -> None:
        """Start storing deleted keys, unless nothing is carried that they hide. Call it before `insert_data`.

        Rows of the epoch are newer than its deletes: what was deleted of them is not among them.
        """
        if any(may_hide(deleted.key_range, file) for file in self._carried.files):
            write = submit_write(write_run, deleted, self._context, self._epoch)
            self._writes.append((deleted, write))


def swap_in_live_files(files: TableFiles, compacted: CompactedFiles) -> TableFiles:
    """The files with a merge swapped in. Rows that expired since the merge began stay expired.

    A replaced file may be gone because all its rows expired, or because its deletes hide nothing any
    more. If it is gone for another reason, its rows are stored elsewhere, or its deletes never happened,
    and the merge is dropped: otherwise rows would exist twice, or be missing.
    """
    held = {(file.path, file.valid_keys): file for file in files.files}
    now = [held.get((file.path, file.valid_keys)) for file in compacted.replaced]
    raised_us = _raised_floor_us(compacted.replaced, now)
    dead_before_us = later_us(files.expired_before_us, raised_us)
    left = tuple(file for file in now if file is not None)
    if not left or not _are_gone_for_good(compacted.replaced, now, dead_before_us):
        return files
    stamped = (file if is_deletes(file) else raise_valid_from(file, raised_us) for file in compacted.merged)
    merged = tuple(file for file in stamped if not is_dead(file))
    return swap_in(files, replace(compacted, replaced=left, merged=merged))


def _are_gone_for_good(
    replaced: Sequence[FileRef], now: Sequence[FileRef | None], dead_before_us: int | None
) -> bool:
    """Whether each file that is not there any more has nothing that could still count."""
    rows_follow = False
    for file, there in zip(reversed(replaced), reversed(now), strict=True):
        if is_deletes(file):
            # The merge lacks the rows that they hid. That is right only if all of those have expired.
            if there is None and rows_follow:
                return False
        elif there is not None:
            rows_follow = True
        elif not is_dead(raise_valid_from(file, dead_before_us)):
            return False
    return True


def _raised_floor_us(before: Sequence[FileRef], now: Sequence[FileRef | None]) -> int | None:
    """The floor that references got since then, or None. All of them got the same."""
    floors = [
        there.valid_from_us
        for file, there in zip(before, now, strict=True)
        if there is not None and there.valid_from_us is not None and there != file
    ]
    return max(floors, default=None)
