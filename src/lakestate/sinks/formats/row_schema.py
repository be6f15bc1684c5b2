"""What a file accepts: values that their types allow, and the columns that are not partitions."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakestate.errors import InvalidInputError


def check_values(batch: pa.RecordBatch) -> None:
    """Refuse values that their types do not allow. Spark's text may be any bytes.

    A file that holds such a value could not be continued in the next epoch, and most readers refuse it.
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
