"""The data files of a table: Parquet files of the ordinary file sink, in the table's own schema.

Made in every process and for every epoch from the table as it is then, so that a file is always begun
with the current schema and partition spec; files begun with an older one are finished.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from lakestate.sinks.files.open_files import OpenFile
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.writer import FileSinkWriter
from lakestate.sinks.formats.parquet.format import ParquetFormat
from lakestate.sinks.formats.parquet.segment import ParquetEncoding
from lakestate.sinks.iceberg.partitioning import IcebergPartitioning
from lakestate.sinks.iceberg.table import TableFacts
from lakestate.sinks.sink import SinkContext


@dataclass(frozen=True)
class IcebergDataFormat(ParquetFormat):
    """Parquet as Iceberg wants it: short decimals are stored as integers."""

    @cached_property
    def encoding(self) -> ParquetEncoding:
        """How rows are encoded."""
        return ParquetEncoding(self.compression, self.compression_level, decimals_as_integers=True)


@dataclass(frozen=True, repr=False)
class IcebergFiles(FileSink):
    """The file sink of one table as it is now."""

    can_replace_files: ClassVar[bool] = True

    _: KW_ONLY
    facts: TableFacts
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The schema of the files, with field ids."""
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


class IcebergWriter(FileSinkWriter):
    """The files of one subtask in one epoch; those of another table are refused."""

    def __init__(self, files: IcebergFiles, context: SinkContext) -> None:
        self._facts = files.facts
        super().__init__(files, context)

    def _adopt(self, record: OpenFile) -> None:
        self._facts.check_is_table_of(record.format, record.path)
        super()._adopt(record)
