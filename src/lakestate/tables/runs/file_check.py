"""Checks one data file of runs against its reference: that it decodes, and holds what the reference says.

Rows are read a row group at a time where the reference knows them, so that memory does not follow
the size of the file. Raises the errors that restoring would raise; `ContradictionError` where the
bytes are as they were written and still are not what the reference says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.job.objects import JobObjects
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import FileRef, TimeRange
from lakestate.tables.context import TableContext
from lakestate.tables.data_files import check_checksum, expect
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.files import open_run
from lakestate.tables.runs.key_equality import same_keys
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.parquet import decode_run
from lakestate.tables.runs.partial_read import key_pieces, read_blocks
from lakestate.tables.runs.run import Run


def check_run_file(file: FileRef, layout: RunLayout, context: TableContext) -> None:
    """Raise if a file is not what its reference and its table say. No cache is looked at."""
    config = layout.config
    if file.blocks:
        check_checksum(file.object_ref, context.objects)
    if (file.state_version, file.schema_fingerprint) == (config.state_version, config.schema_fingerprint):
        _check_run(file, replace(layout, config=_as_written(file, config)), context)
    else:
        _check_other_version(file, config, context)


@dataclass
class _FileTotals:
    """What the rows of a file add up to."""

    row_count: int = 0
    removed_count: int = 0
    keys: KeyRange | None = None
    times: list[TimeRange] = field(default_factory=list)

    def add(self, run: Run) -> None:
        found = run.key_range
        if found is None:
            return
        self.row_count += len(run)
        self.removed_count += 0 if run.removed is None else int(run.removed.sum())
        self.keys = found if self.keys is None else KeyRange(self.keys.first, found.last)
        if run.times_us is not None:
            self.times.append(TimeRange(int(run.times_us.min()), int(run.times_us.max())))

    @property
    def time_range(self) -> TimeRange | None:
        if not self.times:
            return None
        return TimeRange(min(each.first_us for each in self.times), max(each.last_us for each in self.times))


def _as_written(file: FileRef, config: TableConfig) -> TableConfig:
    """The declaration with a time to live exactly if the file was written under one.

    It may be given or taken away within a state version, and the rows of files that are there stay
    as they are. Only files that were written under one have times.
    """
    if file.times is None:
        return replace(config, ttl_us=None, time_column=None)
    if config.time_column is not None:
        return config
    return replace(config, ttl_us=None if file.times is None else config.ttl_us or 1)


def _check_run(file: FileRef, layout: RunLayout, context: TableContext) -> None:
    shown, seen = context.objects.url_of(file.path), _FileTotals()
    for keys in key_pieces([file]):
        run = open_run(replace(file, valid_keys=keys), layout, context)
        _check_order(run, shown)
        seen.add(run)
    found = (seen.row_count, seen.removed_count, seen.keys, seen.time_range)
    expected = (file.row_count, file.removed_count, file.keys, file.times)
    names = ("rows", "removed rows", "keys", "times")
    for name, one, other in zip(names, found, expected, strict=True):
        expect(one, other, f"a data file holds other {name} than its reference says", shown)


def _check_order(run: Run, shown: str) -> None:
    """Rows are found by searching: the hashes must be those of the keys, and ascend."""
    if len(run) == 0:
        return
    keys, hashes = run.layout.hashes(run.key_columns)
    stored = run.keys if run.hashes is None else run.hashes
    is_right = np.array_equal(keys, run.keys) and np.array_equal(keys if hashes is None else hashes, stored)
    expect(is_right, True, "a data file holds hashes that are not those of its keys", shown)
    fine = keys if hashes is None else hashes
    same = keys[1:] == keys[:-1]
    ascends = bool(np.all((keys[1:] > keys[:-1]) | (same & (fine[1:] >= fine[:-1]))))
    expect(ascends, True, "a data file is not in the order of its keys", shown)
    if run.layout.has_removals or not run.layout.config.table_type.is_append_only:
        places = np.flatnonzero(same & (fine[1:] == fine[:-1]))
        expect(_any_equal(run, places), False, "a data file holds a key twice", shown)


def _any_equal(run: Run, places: np.ndarray) -> bool:
    """Whether a row at one of the places has the same key as the row after it."""
    if not len(places):
        return False
    first, second = pa.array(places), pa.array(places + 1)
    left = [pc.take(column, first) for column in run.key_columns]
    right = [pc.take(column, second) for column in run.key_columns]
    return bool(same_keys(left, right).any())


def _check_other_version(file: FileRef, config: TableConfig, context: TableContext) -> None:
    """Only the code that declares the migration knows the columns: what can be said without it."""
    shown, count = context.objects.url_of(file.path), 0
    for rows, metadata in _decode_pieces(file, context.objects, shown):
        identity = CheckpointParquetMetadata.from_key_values(metadata, shown)
        identity.check(config, shown)
        expect(identity.state_version, file.state_version, "a data file is of another state version", shown)
        count += rows.num_rows
    expect(count, file.row_count, "a data file holds other rows than its reference says", shown)


def _decode_pieces(
    file: FileRef, objects: JobObjects, shown: str
) -> Iterator[tuple[pa.Table, dict[bytes, bytes] | None]]:
    if not file.blocks:
        data = pa.py_buffer(objects.read_verified(file.object_ref))
        rows = decode_run(data, shown, file.row_count)
        yield rows, rows.schema.metadata
    for index in range(len(file.blocks)):
        rows, metadata = read_blocks(file, [index], objects)
        yield rows, None if metadata is None else dict(metadata)
