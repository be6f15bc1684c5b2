"""One data file against its reference. What it must hold is asked of its table's type."""

from __future__ import annotations

from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.registry import table_of


def check_data_file(file: FileRef, config: TableConfig, context: TableContext) -> None:
    """Raise if a file is not what its reference and its table say. No cache is looked at."""
    table_of(config).check_file(file, context)
