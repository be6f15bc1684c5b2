"""The threads of this process that encode, upload and fill the cache. Parquet and sockets release the GIL."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache

from lakestate.storage.parallel import InlineExecutor, is_sequential

WRITERS_MAX = 4


def writers() -> Executor:
    """A pool of threads, or an executor that runs work at once if nothing may run in parallel."""
    return InlineExecutor() if is_sequential() else _threads()


@cache
def _threads() -> Executor:
    return ThreadPoolExecutor(WRITERS_MAX, thread_name_prefix="lakestate-write")
