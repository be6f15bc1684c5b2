"""The data files of a table: Parquet files of the ordinary file sink, in the table's own types."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import pyarrow as pa

from lakestate.sinks.delta.partition_values import DeltaPartitioning
from lakestate.sinks.delta.table import TableFacts
from lakestate.sinks.files.open_files import OpenFile
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.writer import FileSinkWriter
from lakestate.sinks.formats.row_schema import without_columns
from lakestate.sinks.sink import SinkContext


@dataclass(frozen=True, repr=False)
class DeltaFiles(FileSink):
    """The file sink of one table, as it was when the job started."""

    _: KW_ONLY
    facts: TableFacts
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The columns of the table that rows have."""

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


class DeltaWriter(FileSinkWriter):
    """The files of one subtask in one epoch; those of another table are refused."""

    def __init__(self, files: DeltaFiles, context: SinkContext) -> None:
        self._facts = files.facts
        super().__init__(files, context)

    def _adopt(self, record: OpenFile) -> None:
        self._facts.check_is_table_of(record.format, record.path)
        super()._adopt(record)
