"""Routing keys: Spark's `xxhash64`, bit for bit, over whole columns.

May import `arrow`, `protocol.key_ranges` and `errors`. `xxh64` is private to the folder.
"""

from lakestate.tables.hashing.routing import routing_keys, subtasks_of

__all__ = ["routing_keys", "subtasks_of"]
