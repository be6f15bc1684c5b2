"""Deleted keys of a `TimeKeyTable`: how they are stored, and which rows they hide.

A file of deletes is a run that holds each deleted key once, and no rows. It stands in the list of files,
newest first, and hides the rows of its keys in every file after it. Rows that were inserted after the
delete are in files before it. It is dropped as soon as no file after it can hold one of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.values import FileRef
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.lookup import HashedKeys, Query
from lakestate.tables.runs.merge import sort_keep_last
from lakestate.tables.runs.run import Run
from lakestate.tables.time_key.runs import TimeSpan, matches


class DeletesLayout(RunLayout):
    """The columns of a run of deleted keys: the key, and `__removed`, which is true in every row."""

    @cached_property
    def has_removals(self) -> bool:
        """True: a file of deletes is known by the removals that its reference counts."""
        return True

    @classmethod
    def of(cls, layout: RunLayout) -> DeletesLayout:
        """The layout of deletes of a table with rows of this layout."""
        return cls(replace(layout.config, value_columns=(), time_column=None), layout.hash)

    def run_of(self, hashed: HashedKeys) -> Run:
        """The keys as a run, each once."""
        columns = [pa.array(hashed.keys)]
        if hashed.hashes is not None:
            columns.append(pa.array(hashed.hashes))
        removed = pa.array(np.ones(len(hashed.keys), dtype=bool))
        rows = pa.Table.from_arrays([*columns, *hashed.columns, removed], schema=self.schema)
        return sort_keep_last(Run(rows, self), hashed.order)

    def rename_keys(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> pa.Table:
        """The rows of a file of any version: key columns may have other names, but never other types."""
        names = self.schema.names
        return rows.rename_columns(names) if rows.num_columns == len(names) else rows


def is_deletes(file: FileRef) -> bool:
    """True for a file of deleted keys. A file of rows holds no removals."""
    return file.removed_count > 0


def held_keys(file: FileRef) -> KeyRange | None:
    """The range of the keys that a file holds for its holder; None if there is none."""
    return file.valid_keys if file.keys is None else file.valid_keys.intersection(file.keys)


def may_hide(deletes: KeyRange | None, file: FileRef) -> bool:
    """False if no row of a file can have one of the deleted keys in a range."""
    held = held_keys(file)
    return deletes is not None and held is not None and not is_deletes(file) and deletes.overlaps(held)


def drop_needless(files: Sequence[FileRef]) -> tuple[FileRef, ...]:
    """The files, newest first, without deletes that hide nothing any more."""
    return tuple(
        file
        for place, file in enumerate(files)
        if not is_deletes(file) or any(may_hide(held_keys(file), older) for older in files[place + 1 :])
    )


def rows_and_deletes(files: Sequence[FileRef]) -> Iterator[tuple[FileRef, tuple[FileRef, ...]]]:
    """Each file of rows, with the newer deletes that may hide some of them."""
    deletes: list[FileRef] = []
    for file in files:
        if is_deletes(file):
            deletes.append(file)
        else:
            yield file, tuple(each for each in deletes if may_hide(held_keys(each), file))


def hidden_places(run: Run, deletes: Sequence[Run]) -> np.ndarray:
    """The places in a run of rows whose key is deleted, ascending.

    Searches for the deleted keys among the rows, so that a few deletes cost little in a large run.
    """
    found = [np.empty(0, dtype=np.int64)]
    held = run.key_range
    for deleted in deletes:
        near = deleted if held is None else deleted.clip_to(held)
        if held is not None and len(near):
            found.append(matches(run, query_of(near), TimeSpan())[0])
    return np.unique(np.concatenate(found))


def without_places(run: Run, hidden: np.ndarray) -> Run:
    """The rows of a run that are not at the given places."""
    if not len(hidden):
        return run
    kept = np.delete(np.arange(len(run)), hidden)
    return Run(run.rows.take(pa.array(kept)), run.layout)


def query_of(deleted: Run) -> Query:
    """A search for deleted keys."""
    return Query(deleted.keys, deleted.hashes, deleted.key_columns)
