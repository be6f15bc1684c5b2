"""Merging the stored runs of a table into one, beside the stream.

The merge walks the key space slice by slice and writes one row group at a time, so that its memory does
not grow with the state. The files it replaces stay readable until retention removes them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakestate.protocol.compaction import CompactionPolicy, plan_compaction
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.arrow.wide_text import combine_chunks, narrow_text
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.files import RunSummary, Upgrade, open_run, split_into_row_groups, store_run_bytes
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.merge import key_slices, merge_runs
from lakestate.tables.runs.parquet import (
    footer_with_checksums,
    has_column_checksums,
    long_columns,
    run_writer,
)
from lakestate.tables.runs.run import Run


def compact_runs(
    layout: RunLayout,
    files: TableFiles,
    policy: CompactionPolicy,
    epoch: Epoch,
    context: TableContext,
    *,
    upgrade: Upgrade | None,
    expired_before_us: int | None,
) -> CompactedFiles | None:
    """Merge the group of runs that the policy picks. None if it picks none."""
    plan = plan_compaction(files.files, policy)
    if plan is None:
        return None
    group = files.files[plan.start : plan.stop]
    runs = [open_run(file, layout, context, upgrade) for file in group]
    rows = _merge_surviving_rows(runs, layout, expired_before_us, plan.reaches_oldest)
    file = write_pieces(rows, layout, context, epoch, long_columns(run.rows for run in runs))
    return CompactedFiles(files.table, group, () if file is None else (file,))


def write_pieces(
    pieces: Iterator[Run],
    layout: RunLayout,
    context: TableContext,
    epoch: Epoch,
    long: frozenset[str],
) -> FileRef | None:
    """Store sorted pieces as one file. None if there are no rows. `long` are columns with long values."""
    key_values = CheckpointParquetMetadata.of(layout.config).to_key_values()
    with tempfile.TemporaryDirectory(prefix="lakestate-compact-") as folder:
        path = Path(folder) / "run.parquet"
        streamed = RunSummary()
        stored = layout.stored_schema
        with run_writer(str(path), stored, key_values, long) as writer:
            for piece in pieces:
                for group in split_into_row_groups(piece):
                    rows = narrow_text(group.rows.select(stored.names), stored)
                    writer.write_table(rows, row_group_size=len(group))
                    streamed.add(group)
        if not streamed.row_count:
            return None
        _add_column_checksums(path, stored, key_values)
        with pa.memory_map(str(path)) as source:
            return store_run_bytes(source.read_buffer(), streamed, layout, context, epoch)


def _add_column_checksums(path: Path, schema: pa.Schema, key_values: Mapping[bytes, bytes]) -> None:
    """Give a large file the checksums of its column chunks, in place: only its footer changes."""
    if not has_column_checksums(path.stat().st_size):
        return
    with pa.memory_map(str(path)) as source:
        start, footer = footer_with_checksums(source.read_buffer(), schema, key_values)
    with path.open("r+b") as file:
        file.truncate(start)
        file.seek(start)
        file.write(footer)


def _merge_surviving_rows(
    runs: Sequence[Run], layout: RunLayout, expired_before_us: int | None, reaches_oldest: bool
) -> Iterator[Run]:
    for part in key_slices(runs):
        run = merge_runs(part, layout)
        keep = _surviving_mask(run, expired_before_us) if reaches_oldest else None
        if keep is not None:
            run = Run(combine_chunks(run.rows.filter(pa.array(keep))), layout)
        if len(run):
            yield run


def _surviving_mask(run: Run, expired_before_us: int | None) -> np.ndarray | None:
    """Rows that are neither removed nor expired. Only valid if no older row is left for them to hide."""
    keep = None if run.removed is None else ~run.removed
    if expired_before_us is not None and run.times_us is not None:
        fresh = run.times_us >= expired_before_us
        keep = fresh if keep is None else keep & fresh
    return keep
