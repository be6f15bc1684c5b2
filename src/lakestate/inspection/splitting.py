"""Rows and changes of a table in independent parts by key range, each for a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lakestate.inspection.changes.spans import spans_of
from lakestate.inspection.changes.state_changes import StateChanges
from lakestate.inspection.row_filter import RowFilter
from lakestate.inspection.state import StateSource
from lakestate.inspection.state_table import StateTable
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange
from lakestate.protocol.metadata import TableFiles
from lakestate.tables.contract import Table
from lakestate.tables.runs.partial_read import key_pieces, narrow_range
from lakestate.tables.runs.table import RunTable

PART_BYTES = 64 << 20
"""About how much of the data files a part reads."""


def split_table(table: StateTable, rows: RowFilter, part_bytes: int = PART_BYTES) -> list[StateTable]:
    """The table in parts. What a filter by key cannot match is left out."""
    source, wanted = table.source, _routing_keys(table.source.table, rows)
    if source.table.table_type.is_replicated:
        return [StateTable(source.clip_to(ALL_KEYS))]
    return [
        StateTable(source.clip_to(keys))
        for metadata, files in source.parts
        for keys in _ranges(source, metadata.key_range, files, part_bytes)
        if wanted is None or narrow_range(keys, wanted) is not None
    ]


def split_changes(changes: StateChanges, rows: RowFilter) -> list[StateChanges]:
    """The changes in parts, without key ranges in which both epochs have the same files."""
    if not changes.is_in_runs:
        return [changes.clip_to(ALL_KEYS)]
    wanted = _routing_keys(changes.table, rows)
    return [
        changes.clip_to(span.keys)
        for span in spans_of(changes.before, changes.after)
        if not span.is_same and (wanted is None or narrow_range(span.keys, wanted) is not None)
    ]


def _ranges(source: StateSource, keys: KeyRange, files: TableFiles, part_bytes: int) -> Iterator[KeyRange]:
    """The keys of a subtask in as many ranges as its files are large."""
    if not isinstance(source.table, RunTable):
        yield keys
        return
    pieces = [held for piece in key_pieces(files.files) if (held := piece.intersection(keys)) is not None]
    size = sum(file.size_bytes for file in files.files)
    count = max(1, min(len(pieces), -(-size // part_bytes)))
    for group in np.array_split(np.arange(len(pieces)), count):
        yield KeyRange(pieces[group[0]].first, pieces[group[-1]].last)


def _routing_keys(table: Table, rows: RowFilter) -> np.ndarray | None:
    routing = None if rows.keys is None else table.routing_keys_of(rows.keys)
    return None if routing is None else np.unique(routing)
