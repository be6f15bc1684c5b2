"""The data files of a table: those of the ordinary file sink, in the table's own schema."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa

from lakestate.sinks.files.open_files import OpenFile
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.writer import FileSinkWriter
from lakestate.sinks.sink import SinkContext


class BelongsToTable(Protocol):
    """What is known of a table."""

    def check_is_table_of(self, file_format: str, path: str) -> None:
        """Refuse a file that was begun for another table."""
        ...


@dataclass(frozen=True, repr=False)
class TableFiles(FileSink):
    """A file sink whose files readers find by a table."""

    can_replace_files: ClassVar[bool] = True

    _: KW_ONLY
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The columns of the table that rows have."""


class TableFilesWriter(FileSinkWriter):
    """The files of one subtask in one epoch; those of another table are refused."""

    def __init__(self, files: TableFiles, facts: BelongsToTable, context: SinkContext) -> None:
        self._facts = facts
        super().__init__(files, context)

    def _adopt(self, record: OpenFile) -> None:
        self._facts.check_is_table_of(record.format, record.path)
        super()._adopt(record)
