"""Rows against declarations: what an operator yields, and what an operator or a sink is given."""

from __future__ import annotations

import pyarrow as pa

from lakestate.errors import InvalidInputError, OperatorError
from lakestate.tables.arrow.conform import conform_batch
from lakestate.tables.arrow.struct_fields import select_struct_fields


def conform_output(batch: pa.RecordBatch, schema: pa.Schema | None, where: str) -> pa.RecordBatch:
    """The batch with exactly the declared columns. Raises OperatorError for any other column."""
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
    return _conform(batch, schema, f"output of {where}")


def conform_input(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """The columns of a schema, and the fields of its structs, from a batch that may have more.

    Rows that were conformed to the same schema before are returned as they are.
    """
    if not batch.schema.equals(schema):
        batch = _without_other_fields(batch, schema)
    return _conform(batch, schema, what)


def _without_other_fields(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column
        if (place := schema.get_field_index(name)) < 0
        else select_struct_fields(column, schema.field(place).type)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _conform(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    try:
        return conform_batch(batch, schema, what)
    except InvalidInputError as cause:
        raise OperatorError(
            cause.summary, object_name=cause.object_name, found=cause.found, expected=cause.expected
        ) from cause
