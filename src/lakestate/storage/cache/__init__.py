"""The run cache: a bounded directory of immutable files, shared by all processes of a host.

For the tables, which keep local copies of runs in it, and for verification, which reads entries
with the functions of `entry`. May import `storage.local` and `errors`.
"""

from lakestate.storage.cache.run_cache import CachedFile, CacheStats, RunCache

__all__ = ["CacheStats", "CachedFile", "RunCache"]
