"""The data files of a table: Parquet files of the ordinary file sink, in the table's own schema.

Made in every process and for every epoch from the table as it is then, so that a file is always begun
with the current schema and partition spec; files begun with an older one are finished.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import pyarrow as pa

from lakestate.sinks.formats.parquet.format import ParquetFormat
from lakestate.sinks.formats.parquet.segment import ParquetEncoding
from lakestate.sinks.iceberg.partitioning import IcebergPartitioning
from lakestate.sinks.iceberg.table import TableFacts
from lakestate.sinks.table_format.data_files import TableFiles


@dataclass(frozen=True)
class IcebergDataFormat(ParquetFormat):
    """Parquet as Iceberg wants it: short decimals are stored as integers."""

    @cached_property
    def encoding(self) -> ParquetEncoding:
        """How rows are encoded."""
        return ParquetEncoding(self.compression, self.compression_level, decimals_as_integers=True)


@dataclass(frozen=True, repr=False)
class IcebergFiles(TableFiles):
    """The file sink of one table as it is now. Its columns have field ids."""

    _: KW_ONLY
    facts: TableFacts
    event_time_column: str | None = None

    @property
    def partitioning(self) -> IcebergPartitioning:
        """By the table's partition spec."""
        names = tuple(each.name for each in self.facts.fields)
        return IcebergPartitioning(names, self.facts.fields, self.columns, self.event_time_column)

    def file_schema(self, schema: pa.Schema, event_time: str | None) -> pa.Schema:
        """The table's columns that rows have."""
        return self.columns

    def format_key(self, schema: pa.Schema) -> str:
        """Also which table, schema and partition spec the files are for."""
        return self.facts.format_key(super().format_key(schema))
