"""`GlobalKeyedTable`: typed Python keys and values, replicated to every subtask.

May import `runs.parquet`, `hashing`, `migration`, `arrow` and the contract of tables, no other table type.
"""

from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.global_keyed.view import GlobalKeyedView

__all__ = ["GlobalKeyedTable", "GlobalKeyedView"]
