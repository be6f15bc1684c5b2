"""Merging stored files of a `TimeKeyTable`: without rows that have expired or whose key was deleted."""

from __future__ import annotations

from collections.abc import Sequence

from lakestate.protocol.compaction import CompactionPolicy, plan_compaction
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.runs.compaction import write_pieces
from lakestate.tables.runs.files import Upgrade, open_run
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.merge import key_slices, merge_runs
from lakestate.tables.runs.parquet import long_columns
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.run_set import raise_valid_from
from lakestate.tables.time_key.deletes import (
    DeletesLayout,
    held_keys,
    hidden_places,
    is_deletes,
    may_hide,
    rows_and_deletes,
    without_places,
)
from lakestate.tables.time_key.files import is_dead, later_us, retained_from_us
from lakestate.tables.time_key.runs import TimeSpan, merge_time_slices, rows_within


def compact_time_runs(
    layout: RunLayout,
    files: TableFiles,
    policy: CompactionPolicy,
    epoch: Epoch,
    context: TableContext,
    upgrade: Upgrade | None,
) -> CompactedFiles | None:
    """Merge the group of runs that the policy picks, without expired and deleted rows. None if it picks none.

    What is left is at most one file of rows and, behind it, one of deletes for the files that are older.
    """
    plan = plan_compaction(files.files, policy)
    if plan is None:
        return None
    group, older = files.files[plan.start : plan.stop], files.files[plan.stop :]
    floor_us = later_us(files.expired_before_us, retained_from_us(layout.config, context))
    merge = _Merge(layout, epoch, context, upgrade, group, floor_us)
    needed = [file for file in merge.deletes if any(may_hide(held_keys(file), each) for each in older)]
    if len(group) <= bool(merge.rows) + bool(needed):
        # Two files would become two files, again and again.
        return None
    written = (merge.write_rows(), merge.write_deletes(needed))
    return CompactedFiles(files.table, group, tuple(file for file in written if file is not None))


class _Merge:
    """The files of one group, and what becomes of them."""

    def __init__(
        self,
        layout: RunLayout,
        epoch: Epoch,
        context: TableContext,
        upgrade: Upgrade | None,
        group: Sequence[FileRef],
        floor_us: int | None,
    ) -> None:
        self._layout = layout
        self._deletes_layout = DeletesLayout.of(layout)
        self._epoch = epoch
        self._context = context
        self._upgrade = upgrade
        self.deletes = [file for file in group if is_deletes(file)]
        held = [file if is_deletes(file) else raise_valid_from(file, floor_us) for file in group]
        self.rows = [(file, hiding) for file, hiding in rows_and_deletes(held) if not is_dead(file)]

    def write_rows(self) -> FileRef | None:
        """The rows of the group that are alive, as one file. None if there are none."""
        runs = [open_run(file, self._layout, self._context, self._upgrade) for file, _ in self.rows]
        spans = [TimeSpan().since(file.valid_from_us) for file, _ in self.rows]
        hiding = [[self._open_deletes(file) for file in files] for _, files in self.rows]

        def live_rows(number: int, piece: Run) -> Run:
            left = without_places(piece, hidden_places(piece, hiding[number]))
            return rows_within(left, spans[number])

        pieces = merge_time_slices(runs, live_rows, self._layout)
        long = long_columns(run.rows for run in runs)
        return write_pieces(pieces, self._layout, self._context, self._epoch, long)

    def write_deletes(self, needed: Sequence[FileRef]) -> FileRef | None:
        """The deleted keys of some files, each once, as one file. None if there are none."""
        runs = [self._open_deletes(file) for file in needed]
        pieces = (merge_runs(part, self._deletes_layout) for part in key_slices(runs))
        kept = (piece for piece in pieces if len(piece))
        long = long_columns(run.rows for run in runs)
        return write_pieces(kept, self._deletes_layout, self._context, self._epoch, long)

    def _open_deletes(self, file: FileRef) -> Run:
        layout = self._deletes_layout
        return open_run(file, layout, self._context, layout.rename_keys)
