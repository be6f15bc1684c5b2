"""Which columns of a row group are worth a dictionary.

Parquet writers try a dictionary for every column and abandon it when it grows too large. For ids,
amounts and times that is a quarter of all work, and the part encoded so far stays large. So a sample is
examined first, and columns whose values rarely repeat are written without a dictionary.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROWS_MIN = 1 << 16
"""With fewer rows a dictionary cannot grow too large."""

SAMPLE_ROWS = 8192
DISTINCT_MIN = 0.98
"""If this share of a sample is distinct, there are hundreds of thousands of values in all."""


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """The value for `use_dictionary` of `ParquetWriter`: all columns, none, or the paths of some.

    >>> rows = pa.table({"id": np.arange(1 << 17), "kind": np.arange(1 << 17) % 5})
    >>> dictionary_columns(rows)
    ['kind']
    """
    if len(rows) < ROWS_MIN:
        return True
    sample = rows.take(_spread_rows(len(rows)))
    distinct = {field.name for field in rows.schema if _rarely_repeats(sample.column(field.name))}
    if not distinct:
        return True
    # One list serves flat and nested columns: the path of a flat column is its name.
    kept = [path for path in _leaf_paths(rows.schema) if path not in distinct]
    return kept or False


def _spread_rows(count: int) -> pa.Array:
    """One row of each stretch, at a varying position, so that a periodic pattern does not bias the sample."""
    stretch = count // SAMPLE_ROWS
    inside = np.random.default_rng(count).integers(0, stretch, SAMPLE_ROWS)
    return pa.array(np.arange(SAMPLE_ROWS) * stretch + inside)


def _rarely_repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type):
        return False
    valid = len(column) - column.null_count
    if valid < SAMPLE_ROWS // 2:
        return False
    try:
        return bool(pc.count_distinct(column, mode="only_valid").as_py() > DISTINCT_MIN * valid)
    except pa.ArrowNotImplementedError:
        return False


@lru_cache(64)
def _leaf_paths(schema: pa.Schema) -> tuple[str, ...]:
    """The paths of all columns as in the Parquet schema, nested ones by their leaves."""
    stream = pa.BufferOutputStream()
    pq.ParquetWriter(stream, schema).close()
    described = pq.ParquetFile(pa.BufferReader(stream.getvalue())).schema
    return tuple(described.column(number).path for number in range(len(described)))
