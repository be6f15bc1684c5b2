"""The data files of a table: Parquet files of the ordinary file sink, in the table's own types."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import pyarrow as pa

from lakestate.sinks.delta.partition_values import DeltaPartitioning
from lakestate.sinks.delta.table import TableFacts
from lakestate.sinks.formats.row_schema import without_columns
from lakestate.sinks.table_format.data_files import TableFiles


@dataclass(frozen=True, repr=False)
class DeltaFiles(TableFiles):
    """The file sink of one table, as it was when the job started."""

    _: KW_ONLY
    facts: TableFacts

    @property
    def partitioning(self) -> DeltaPartitioning:
        """By the table's partition columns."""
        return DeltaPartitioning(self.facts.partition_by, self.columns)

    def file_schema(self, schema: pa.Schema, event_time: str | None) -> pa.Schema:
        """The columns in the files: without those in the path."""
        return without_columns(self.columns, self.facts.partition_by)

    def format_key(self, schema: pa.Schema) -> str:
        """Also which table the files are for, and the types of its columns."""
        return self.facts.format_key(schema, super().format_key(schema))
