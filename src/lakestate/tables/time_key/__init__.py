"""`TimeKeyTable`: many rows per key, each with an event time, expired by time.

May import `runs`, `migration`, `arrow`, `hashing` and the contract of tables, but no other table type.
"""

from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.tables.time_key.view import TimeKeyView

__all__ = ["TimeKeyTable", "TimeKeyView"]
