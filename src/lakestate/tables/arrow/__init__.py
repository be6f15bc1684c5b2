"""Arrow columns and types: declarations, conforming rows to a schema, limits of values.

Knows no table: may import only `protocol.metadata` and `errors`. Tables, operators and sinks use it, so
that rows mean the same everywhere.
"""

from lakestate.tables.arrow.conform import conform_batch, conform_columns
from lakestate.tables.arrow.schema import arrow_fields, arrow_type, columns_of, ddl_of
from lakestate.tables.arrow.struct_fields import add_struct_fields, select_struct_fields
from lakestate.tables.arrow.value_limits import VALUE_BYTES_MAX

__all__ = [
    "VALUE_BYTES_MAX",
    "add_struct_fields",
    "arrow_fields",
    "arrow_type",
    "columns_of",
    "conform_batch",
    "conform_columns",
    "ddl_of",
    "select_struct_fields",
]
