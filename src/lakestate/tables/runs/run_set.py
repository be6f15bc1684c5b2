"""The stored runs of one table in one subtask, opened when they are first needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.rescale import clip_files
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.runs.files import Upgrade, find_run, open_run
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.partial_read import wanted_blocks
from lakestate.tables.runs.run import Run


class RunSet:
    """Files, newest first, and the runs they open to."""

    def __init__(
        self,
        files: tuple[FileRef, ...],
        layout: RunLayout,
        context: TableContext,
        upgrade: Upgrade | None = None,
    ) -> None:
        self._files = files
        self._layout = layout
        self._context = context
        self._upgrade = upgrade
        self._open: dict[_Part, Run] = {}
        self._pieces: dict[_Part, tuple[Sequence[int], Run]] = {}
        """The row groups that were last opened for a part of the keys, by file."""

    @property
    def files(self) -> tuple[FileRef, ...]:
        """What is stored."""
        return self._files

    @property
    def row_count(self) -> int:
        """Rows in all files, including those that newer ones hide."""
        return sum(file.row_count for file in self._files)

    def runs(self, names: Collection[str] | None = None) -> Iterator[Run]:
        """The runs of all files, with at least the named value columns; None stands for all."""
        return (self.run(file, names) for file in self._files)

    def run(self, file: FileRef, names: Collection[str] | None = None) -> Run:
        """The rows of one file that are valid here, with at least the named value columns."""
        part, wanted = _part(file), self._layout.for_values(names).value_names
        known = self._open.get(part)
        if known is None or not known.has_values(wanted):
            if known is not None:
                wanted = (*wanted, *known.layout.value_names)
            self._open[part] = open_run(file, self._layout, self._context, self._upgrade, wanted)
        return self._open[part]

    def find_run(self, file: FileRef) -> Run | None:
        """The rows of one file that are valid here, all columns, unless they would have to be fetched."""
        known = self._open.get(_part(file))
        if known is not None and known.has_values(self._layout.value_names):
            return known
        return find_run(file, self._layout, self._context)

    def for_next_epoch(
        self, files: tuple[FileRef, ...], context: TableContext, written: dict[FileRef, Run] | None = None
    ) -> RunSet:
        """The set of the next epoch. Runs that are open, or were just written, stay open."""
        moved = RunSet(files, self._layout, context, self._upgrade)
        known = self._open | {_part(file): run for file, run in (written or {}).items()}
        moved._open = {part: known[part] for file in files if (part := _part(file)) in known}
        return moved

    def clip_to(self, keys: KeyRange, names: Collection[str] | None = None) -> RunSet:
        """The set for some of the keys, opened with at least the named value columns.

        What the next keys need too stays open here.
        """
        clipped = RunSet(clip_files(self._files, keys), self._layout, self._context, self._upgrade)
        for file in self._files:
            part = file.clipped_to(keys)
            if part is not None:
                clipped._open[_part(part)] = self._piece(file, part, names).clip_to(keys)
        return clipped

    def _piece(self, file: FileRef, part: FileRef, names: Collection[str] | None) -> Run:
        """The row groups of a file that hold a part of its keys."""
        if len(file.blocks) < 2:
            return self.run(file, names)
        if not any(block.keys.overlaps(part.valid_keys) for block in file.blocks):
            # The part lies between two row groups.
            return Run(self._layout.schema.empty_table(), self._layout)
        groups, wanted = wanted_blocks(part) or range(len(file.blocks)), self._layout.for_values(names)
        known = self._pieces.get(_part(file))
        if known is None or not set(groups) <= set(known[0]) or not known[1].has_values(wanted.value_names):
            keys = KeyRange(file.blocks[groups[0]].keys.first, file.blocks[groups[-1]].keys.last)
            wide = file.clipped_to(keys) or part
            run = open_run(wide, self._layout, self._context, self._upgrade, wanted.value_names)
            known = self._pieces[_part(file)] = groups, run
        return known[1]

    def forget_before(self, min_epoch: Epoch) -> None:
        """Close the runs of epochs before this one. They are reopened from the cache if needed."""
        kept = {_part(file) for file in self._files if file.epoch >= min_epoch}
        self._open = {part: run for part, run in self._open.items() if part in kept}


# Identifies an open run. References to one file may differ in more, such as `valid_from_us`.
_Part = tuple[str, KeyRange]


def _part(file: FileRef) -> _Part:
    return file.path, file.valid_keys


def files_of_subtask(files: tuple[FileRef, ...], context: TableContext) -> tuple[FileRef, ...]:
    """The files of the previous epoch that still hold rows of this subtask, clipped to its keys."""
    return clip_files(files, context.task.key_range)


def drop_expired_files(
    files: tuple[FileRef, ...], expired_before_us: int | None, state_version: int
) -> tuple[FileRef, ...]:
    """The files without the oldest ones, as long as all of their rows have expired.

    Only from the old end: a newer file may hide a row of an older one that has not expired. And only
    files of the current version: in an older one the time may have had another meaning.
    """
    if expired_before_us is None:
        return files
    kept = list(files)
    while kept and _is_expired(kept[-1], expired_before_us, state_version):
        kept.pop()
    return tuple(kept)


def _is_expired(file: FileRef, expired_before_us: int, state_version: int) -> bool:
    times = file.times
    return file.state_version == state_version and times is not None and times.last_us < expired_before_us


def raise_valid_from(file: FileRef, valid_from_us: int | None) -> FileRef:
    """The same file, in which rows before a time are no longer valid."""
    if valid_from_us is None or (file.valid_from_us is not None and file.valid_from_us >= valid_from_us):
        return file
    return replace(file, valid_from_us=valid_from_us)
