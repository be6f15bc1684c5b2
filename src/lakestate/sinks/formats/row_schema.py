"""Rows as a file wants them: the columns of its schema, in its order and of its types."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakestate.errors import InvalidInputError


def conformed_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of a schema. Casts only what loses nothing.

    >>> rows = pa.record_batch({"n": pa.array([1], pa.int32()), "other": ["x"]})
    >>> conformed_rows(rows, pa.schema([("n", pa.int64())])).schema
    n: int64
    """
    if batch.schema.equals(schema):
        return batch
    columns = [_conformed(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_values(batch: pa.RecordBatch) -> None:
    """Refuse values that their types do not allow. Spark's text may be any bytes.

    A file that holds such a value could not go on in the next epoch, and most readers refuse it.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as cause:
            raise InvalidInputError(
                "a column holds a value that its type does not allow",
                object_name=name,
                found=f"{name}: {cause}",
                expected=f"values of {column.type}",
                action="correct it before the sink: of text, for example, with Spark's make_valid_utf8",
            ) from cause


def without_columns(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """A schema without some of its columns."""
    return pa.schema([field for field in schema if field.name not in names], metadata=schema.metadata)


def _conformed(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    number = batch.schema.get_field_index(field.name)
    if number < 0:
        raise InvalidInputError(
            "rows lack a column of the file",
            object_name=field.name,
            found=", ".join(batch.schema.names),
            expected=f"{field.type}",
        )
    column = batch.column(number)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
        raise InvalidInputError(
            "a column cannot be cast to what the file holds",
            object_name=field.name,
            found=f"{column.type}: {cause}",
            expected=f"{field.type}",
            action="cast it before the sink",
        ) from cause
