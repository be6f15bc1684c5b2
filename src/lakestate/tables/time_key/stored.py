"""What is stored of a `TimeKeyTable` in one subtask: files of rows, and of deletes that hide some rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.rescale import clip_files
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.runs.checkpointer import RunCheckpointer
from lakestate.tables.runs.files import Upgrade
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.lookup import ABSENT, Query, positions
from lakestate.tables.runs.merge import merge_runs, merge_similar
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.run_set import RunSet
from lakestate.tables.time_key.deletes import (
    DeletesLayout,
    held_keys,
    hidden_places,
    is_deletes,
    may_hide,
    rows_and_deletes,
)
from lakestate.tables.time_key.runs import TimeSpan, matches, rows_within

NOTHING = np.empty(0, dtype=np.int64)


class StoredRows:
    """Files, newest first, opened when they are first needed, and the keys deleted in this epoch."""

    def __init__(self, files: Sequence[FileRef], rows: RunSet, deletes: RunSet) -> None:
        self._files = tuple(files)
        self._rows = rows
        self._deletes = deletes
        self._deleted: list[Run] = []
        """The keys deleted in this epoch, which hide rows of all files."""
        self._hidden: dict[FileRef, np.ndarray] = {}
        """The places of deleted rows, by file, as far as they have been searched for."""

    @classmethod
    def open(
        cls, files: TableFiles, layout: RunLayout, context: TableContext, upgrade: Upgrade | None
    ) -> StoredRows:
        """What these files hold. Nothing is read yet."""
        deletes, (rows, deleted) = DeletesLayout.of(layout), _by_kind(files.files)
        return cls(
            files.files,
            RunSet(rows, layout, context, upgrade),
            RunSet(deleted, deletes, context, deletes.rename_keys),
        )

    @property
    def deleted(self) -> Run | None:
        """The keys deleted in this epoch, or None."""
        return merge_runs(self._deleted, self._deleted[0].layout) if self._deleted else None

    def run(self, file: FileRef, names: Collection[str] | None) -> Run:
        """The rows of a file, dead ones included, with at least the named value columns; None: all."""
        return self._rows.run(file, names)

    def absorb_into(self, checkpointer: RunCheckpointer, row_count: int) -> list[Run]:
        """The live rows of small files, to be written again together with so many new rows.

        None if keys were deleted in this epoch: their deletes come before the rows of the epoch.
        """
        if self._deleted:
            return []
        taken = checkpointer.absorb(row_count, self._rows)
        return [rows_within(run, TimeSpan().since(file.valid_from_us)) for file, run in taken]

    def delete(self, deleted: Run) -> None:
        """Hide the rows of some keys."""
        if self._files:
            self._deleted.insert(0, deleted)
            merge_similar(self._deleted, lambda runs: merge_runs(runs, deleted.layout))
            self._hidden.clear()

    def live_files(self, span: TimeSpan) -> Iterator[tuple[FileRef, TimeSpan]]:
        """The files that may have rows in a span, each with the part of it that is alive there."""
        for file in self._files:
            live = span.since(file.valid_from_us)
            if not is_deletes(file) and live.overlaps(file.times):
                yield file, live

    def live_places(self, file: FileRef, live: TimeSpan) -> np.ndarray:
        """The places of a file's rows that are in a span and not deleted."""
        return live_places(self.run(file, ()), live, self.hidden_places(file))

    def hidden_places(self, file: FileRef) -> np.ndarray:
        """The places of a file's rows whose key was deleted, ascending."""
        if file not in self._hidden:
            hiding = self._hiding(file)
            self._hidden[file] = hidden_places(self.run(file, ()), hiding) if hiding else NOTHING
        return self._hidden[file]

    def is_whole(self, file: FileRef, live: TimeSpan) -> bool:
        """True if every row of a file counts, which can be said without opening it."""
        is_owned = file.keys is not None and file.valid_keys.contains(file.keys)
        return is_owned and live.covers(file.times) and not self._hiding(file)

    def search(
        self, span: TimeSpan, query: Query, names: Collection[str]
    ) -> Iterator[tuple[Run, np.ndarray, np.ndarray]]:
        """The rows of some keys: a run, the places in it, and the rows of the query they belong to.

        Goes from new to old, so that a key that was found among deletes hides what comes after.
        """
        gone = np.zeros(len(query), dtype=bool)
        for deleted in self._deleted:
            gone |= positions(deleted, query) != ABSENT
        for file in self._files:
            live = span.since(file.valid_from_us)
            if not _may_hold(file, query) or not live.overlaps(file.times):
                continue
            if is_deletes(file):
                gone |= positions(self._deletes.run(file), query) != ABSENT
            else:
                run = self.run(file, names)
                places, rows = matches(run, query, live)
                shown = ~gone[rows]
                yield run, places[shown], rows[shown]

    def clip_to(self, keys: KeyRange, names: Collection[str] | None = None) -> StoredRows:
        """What is stored for some of the keys, without the deletes of this epoch."""
        return StoredRows(
            clip_files(self._files, keys), self._rows.clip_to(keys, names), self._deletes.clip_to(keys)
        )

    def for_next_epoch(
        self, files: TableFiles, context: TableContext, written: dict[FileRef, Run]
    ) -> StoredRows:
        """What is stored from the next epoch on. Runs that are open, or were just written, stay open."""
        rows, deletes = _by_kind(files.files)
        return StoredRows(
            files.files,
            self._rows.for_next_epoch(rows, context, written),
            self._deletes.for_next_epoch(deletes, context, written),
        )

    def forget_before(self, min_epoch: Epoch) -> None:
        """Close runs that are open only for earlier epochs."""
        self._rows.forget_before(min_epoch)
        self._deletes.forget_before(min_epoch)

    def _hiding(self, file: FileRef) -> list[Run]:
        """The deletes that may hide rows of a file."""
        newer = next(deletes for each, deletes in rows_and_deletes(self._files) if each == file)
        own = [run for run in self._deleted if may_hide(run.key_range, file)]
        return [*own, *(self._deletes.run(each) for each in newer)]


def _by_kind(files: Sequence[FileRef]) -> tuple[tuple[FileRef, ...], tuple[FileRef, ...]]:
    """Files of rows, and files of deletes."""
    rows = tuple(file for file in files if not is_deletes(file))
    return rows, tuple(file for file in files if is_deletes(file))


def live_places(run: Run, live: TimeSpan, hidden: np.ndarray) -> np.ndarray:
    """The places of rows of a run that are in a span and not hidden."""
    places = live.places(run)
    if not len(hidden):
        return places
    shown = np.ones(len(run), dtype=bool)
    shown[hidden] = False
    found: np.ndarray = places[shown[places]]
    return found


def _may_hold(file: FileRef, query: Query) -> bool:
    """False if no key of the query lies among the file's."""
    keys = held_keys(file)
    if keys is None:
        return False
    start = int(np.searchsorted(query.keys, np.uint64(keys.first), side="left"))
    stop = int(np.searchsorted(query.keys, np.uint64(keys.last), side="right"))
    return start < stop
