"""The hashes of the keys in a data file, which are computed when the file is read and not stored.

Rows are stored in ascending order of their hashes. If they do not ascend, then this table did not write
the file, whatever its checksum says, and a search would miss rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError
from lakestate.tables.runs.layout import HASH, KEY, RunLayout


def add_hashes(rows: pa.Table, layout: RunLayout, shown: str) -> pa.Table:
    """The rows of a file with the hashes of their keys in front.

    They are computed from the key columns, which come first, as stored: a later migration may rename
    the columns but does not change the keys.
    """
    if not can_add_hashes(rows.schema, layout):
        raise layout.mismatch(rows.schema, shown)
    columns = _hashes(rows.select(list(range(len(layout.key_names)))), layout)
    _check_ascending(columns, shown)
    for place, (name, hashes) in enumerate(zip((KEY, HASH), columns, strict=False)):
        rows = rows.add_column(place, pa.field(name, pa.uint64(), nullable=False), pa.array(hashes))
    return rows


def can_add_hashes(schema: pa.Schema, layout: RunLayout) -> bool:
    """False of rows that lack key columns, or have hashes."""
    return len(schema) >= len(layout.key_names) and KEY not in schema.names


def _hashes(keys: pa.Table, layout: RunLayout) -> list[np.ndarray]:
    """One array for each hash, even if the key columns are in chunks: it is searched as a whole."""
    batches = keys.to_batches()
    if len(batches) == 1:
        return [hashes for hashes in layout.hashes(batches[0].columns) if hashes is not None]
    columns = [np.empty(keys.num_rows, dtype=np.uint64) for _ in range(1 + layout.has_fine_key)]
    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        for column, hashes in zip(columns, layout.hashes(batch.columns), strict=False):
            column[start:stop] = hashes
        start = stop
    return columns


def _check_ascending(columns: Sequence[np.ndarray], shown: str) -> None:
    keys = columns[0]
    wrong = keys[1:] < keys[:-1]
    if len(columns) > 1:
        wrong |= (keys[1:] == keys[:-1]) & (columns[1][1:] < columns[1][:-1])
    if wrong.any():
        raise CorruptionError(
            "data file is not in the order of its keys",
            object_name=shown,
            found=f"row {int(np.argmax(wrong)) + 1} out of order",
            expected="ascending hashes of the key columns",
            action=RESTORE_OR_GO_BACK,
        )
