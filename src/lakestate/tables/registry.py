"""Tables by their stored type: access for those who know a table only from metadata.

The driver merges, rescales, compacts and cleans up tables of every type without the code that
declared them. Metadata of one type is never handled as another.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakestate.codec import require_table_type
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import TaskInfo
from lakestate.tables.contract import Table
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.time_key.table import TimeKeyTable

TABLE_TYPES: Mapping[TableType, type[Table]] = {
    table.table_type: table for table in (GlobalKeyedTable, KeyedTable, TimeKeyTable)
}


def table_of(config: TableConfig) -> Table:
    """The table of a stored declaration."""
    return TABLE_TYPES[config.table_type].from_config(config)


def merged_table(config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
    """One table's files over the subtasks of an operator, by subtask index."""
    for index, part in parts.items():
        require_table_type(part.table_type, config.table_type, f"table {part.table} of subtask {index}")
    return TABLE_TYPES[config.table_type].merge_checkpoint_metadata(config, parts)


def subtask_part(config: TableConfig, merged: TableFiles, task: TaskInfo) -> TableFiles:
    """What a subtask reads of a merged table."""
    return TABLE_TYPES[config.table_type].subtask_metadata_from_table(config, merged, task)


def files_to_keep(config: TableConfig, files: TableFiles) -> frozenset[str]:
    """The data files that restoring a table needs."""
    return TABLE_TYPES[config.table_type].files_to_keep(config, files)
