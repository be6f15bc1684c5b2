"""Rows in the schema of a table."""

from __future__ import annotations

import pyarrow as pa

from lakestate.tables.arrow.conform import conform_batch
from lakestate.tables.arrow.struct_fields import add_struct_fields


def conform_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in a schema, metadata included; null in the fields of structs that rows lack.

    >>> schema = pa.schema([pa.field("n", pa.int64(), nullable=False, metadata={"id": "1"})])
    >>> conform_rows(pa.record_batch({"other": ["x"], "n": [1]}), schema).schema.equals(schema, True)
    True
    >>> conform_rows(pa.record_batch({"n": pa.array([None], pa.int64())}), schema)
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: write to the table: a required column has no value: n; ...
    """
    if not batch.schema.equals(schema):
        columns = {
            name: add_struct_fields(column, schema.field(name).type)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name in schema.names
        }
        batch = pa.record_batch(columns)
    return conform_batch(batch, schema, "write to the table")
