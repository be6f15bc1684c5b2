"""Writing the runs of one table in one epoch: encode and upload in the background, then collect."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from itertools import takewhile

import pyarrow as pa

from lakestate.protocol.compaction import absorbed_runs
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.contract import FinishedTable
from lakestate.tables.runs.files import write_run
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.run_set import RunSet
from lakestate.tables.writers import submit_write


class RunCheckpointer:
    """Collects the runs of an epoch. `finish` returns the newest first."""

    def __init__(self, layout: RunLayout, epoch: Epoch, carried: TableFiles, context: TableContext) -> None:
        self._layout = layout
        self._epoch = epoch
        self._carried = carried
        self._context = context
        self._writes: list[tuple[Run, Future[FileRef]]] = []

    def absorb(self, row_count: int, stored: RunSet) -> list[tuple[FileRef, Run]]:
        """The newest runs, newest first, to be written again together with so many new rows.

        They are carried no further. A run that would have to be fetched, or migrated, stays.
        """
        files = self._carried.files
        small = files[: absorbed_runs(row_count, [(each.row_count, each.size_bytes) for each in files])]
        taken: list[tuple[FileRef, Run]] = []
        for file in takewhile(self._can_absorb, small):
            run = stored.find_run(file)
            if run is None:
                break
            taken.append((file, run))
        self._carried = replace(self._carried, files=files[len(taken) :])
        return taken

    def _can_absorb(self, file: FileRef) -> bool:
        """True of a file whose rows are as this table declares them."""
        config = self._layout.config
        return (file.state_version, file.schema_fingerprint) == (
            config.state_version,
            config.schema_fingerprint,
        )

    @property
    def carries_files(self) -> bool:
        """Whether older runs remain, in which a row may have to be hidden."""
        return bool(self._carried.files)

    def insert_data(self, rows: pa.Table) -> None:
        """Start storing sorted rows, each key once, newer than all rows given before."""
        if rows.num_rows:
            run = Run(rows, self._layout)
            self._writes.append((run, submit_write(write_run, run, self._context, self._epoch)))

    def finish(self) -> FinishedTable:
        """Wait for the uploads. If one failed, its error is raised and the epoch is not stored."""
        written = tuple(future.result() for _, future in reversed(self._writes))
        files = replace(self._carried, files=(*written, *self._carried.files))
        return FinishedTable(files, sum(file.size_bytes for file in written))

    @property
    def written(self) -> dict[FileRef, Run]:
        """The runs that were stored, by their files. Available after `finish`."""
        return {future.result(): run for run, future in self._writes}
