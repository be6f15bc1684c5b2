"""What an operator yields, against what it declared; and what it is given, against what it needs."""

from __future__ import annotations

import pyarrow as pa

from lakestate.errors import InvalidInputError, OperatorError
from lakestate.tables.arrow.lossless_cast import select_struct_fields
from lakestate.tables.runs.layout import conform_columns


def checked_output(batch: pa.RecordBatch, schema: pa.Schema | None, where: str) -> pa.RecordBatch:
    """The batch with exactly the declared columns; a cast that loses nothing is done."""
    if schema is None:
        raise OperatorError(
            "an operator without output yielded rows",
            object_name=where,
            found=", ".join(batch.schema.names),
            action="declare `output`, or do not yield",
        )
    extra = [name for name in batch.schema.names if schema.get_field_index(name) < 0]
    if extra:
        raise OperatorError(
            "an operator yielded columns that its output does not have",
            object_name=where,
            found=", ".join(extra),
            expected=", ".join(schema.names),
        )
    return _exactly(batch, schema, f"output of {where}")


def fitted(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """The columns of a schema, and the fields of its structs, from a batch that may have more.

    The error names the column that does not fit.
    """
    columns = [
        column
        if (place := schema.get_field_index(name)) < 0
        else select_struct_fields(column, schema.field(place).type)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return _exactly(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), schema, what)


def _exactly(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    try:
        return pa.RecordBatch.from_arrays(conform_columns(batch, list(schema), what), schema=schema)
    except InvalidInputError as cause:
        raise OperatorError(
            cause.summary, object_name=cause.object_name, found=cause.found, expected=cause.expected
        ) from cause
