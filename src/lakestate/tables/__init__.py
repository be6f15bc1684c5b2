"""State tables: their contract and registry, the built-in types, restore, checkpoint, dry run.

May import `job`, `storage`, `codec` and `protocol`; knows no operator, no coordinator and no Spark.
The types are in `keyed`, `time_key` and `global_keyed`; `runs` is what the first two have in common.
Table types outside the package find all that they need here; see docs/table-types.md.
"""

from lakestate.codec.table_codecs import GenericTableCodec, TableCodec
from lakestate.protocol.compaction import CompactionPlan, CompactionPolicy, plan_compaction
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import Column, TableConfig, TableFiles
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import FileRef
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles, EpochCheckpointer, FinishedTable, Table, View
from lakestate.tables.data_files import (
    ContradictionError,
    DataFileCheckpointer,
    DataFileTable,
    read_data_file,
    write_data_file,
)
from lakestate.tables.dry_run import DryRunProblem, DryRunReport
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.global_keyed.view import GlobalKeyedView
from lakestate.tables.hashing.routing import routing_keys
from lakestate.tables.keyed.table import KeyedTable, Ttl
from lakestate.tables.keyed.view import KeyedView
from lakestate.tables.manager import SubtaskCheckpoint, TableManager
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.registry import register_table_type, table_of
from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.tables.time_key.view import TimeKeyView

__all__ = [
    "CheckpointParquetMetadata",
    "Column",
    "CompactedFiles",
    "CompactionPlan",
    "CompactionPolicy",
    "ContradictionError",
    "DataFileCheckpointer",
    "DataFileTable",
    "DryRunProblem",
    "DryRunReport",
    "EpochCheckpointer",
    "FileRef",
    "FinishedTable",
    "GenericTableCodec",
    "GlobalKeyedTable",
    "GlobalKeyedView",
    "KeyRange",
    "KeyedTable",
    "KeyedView",
    "SubtaskCheckpoint",
    "Table",
    "TableCodec",
    "TableConfig",
    "TableContext",
    "TableFiles",
    "TableManager",
    "TableType",
    "TimeKeyTable",
    "TimeKeyView",
    "Ttl",
    "View",
    "columns_of",
    "plan_compaction",
    "read_data_file",
    "register_table_type",
    "routing_keys",
    "table_of",
    "write_data_file",
]
