"""`KeyedTable`: one row per key, upserted and deleted, partitioned by key range.

May import `runs`, `migration`, `arrow`, `hashing` and the contract of tables, but no other table type.
"""

from lakestate.tables.keyed.table import KeyedTable, Ttl
from lakestate.tables.keyed.view import KeyedView

__all__ = ["KeyedTable", "KeyedView", "Ttl"]
