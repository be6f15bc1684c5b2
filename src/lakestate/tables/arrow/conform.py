"""Rows brought into a declared schema: the one place where columns are selected, cast and checked.

Tables, operators and sinks all conform rows here, so that a value means the same on its whole way. A
cast loses nothing or is refused. Rows that already have the schema are returned as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.tables.arrow.columns import whole_column
from lakestate.tables.arrow.lossless_cast import cast_losslessly
from lakestate.tables.arrow.required_values import optional_type, require_values
from lakestate.tables.arrow.value_limits import check_value_sizes


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """The batch with exactly the columns of a schema; the same object if it has them already.

    Raises InvalidInputError as `conform_columns` does. `what` names the operation in its message.

    >>> rows = pa.record_batch({"n": pa.array([1], pa.int32()), "other": ["x"]})
    >>> conform_batch(rows, pa.schema([("n", pa.int64())]), "write to the file").schema
    n: int64
    """
    if batch.schema.equals(schema, check_metadata=True):
        given = batch.columns
        columns = [_conform(column, field, what) for column, field in zip(given, schema, strict=True)]
        if all(one is other for one, other in zip(columns, given, strict=True)):
            return batch
    else:
        columns = conform_columns(batch, schema, what)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def conform_columns(rows: pa.RecordBatch | pa.Table, fields: Iterable[pa.Field], what: str) -> list[pa.Array]:
    """The named columns of `rows`, each one array of exactly the declared type.

    Raises InvalidInputError naming the column that is missing, of a type that cannot be cast without
    loss, or null where a value is required, and the place inside the column.
    """
    return [_conform(_single_column(rows, field, what), field, what) for field in fields]


def _conform(column: pa.Array, field: pa.Field, what: str) -> pa.Array:
    if column.type != field.type:
        # To a type that requires nothing: Arrow's cast would not say where a value is missing.
        column = cast_losslessly(column, field.with_type(optional_type(field.type)), what)
    column = require_values(column, field, what)
    check_value_sizes(column, field.name, what)
    return column


def _single_column(rows: pa.RecordBatch | pa.Table, field: pa.Field, what: str) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    if index < 0:
        raise InvalidInputError(
            f"{what}: a column is missing",
            object_name=field.name,
            found=", ".join(rows.schema.names) or "no column",
            expected=f"{field.name} {field.type}",
        )
    column = rows.column(index)
    return _single_array(column, field, what) if isinstance(column, pa.ChunkedArray) else column


def _single_array(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.Array:
    try:
        return whole_column(column)
    except pa.ArrowInvalid as cause:
        raise InvalidInputError(
            f"{what}: too many bytes at once",
            object_name=field.name,
            found=f"{column.nbytes:,} bytes in {len(column)} rows",
            expected="less than 2 GiB of text or bytes in one column of one call",
            action="hand rows over in several calls",
        ) from cause
