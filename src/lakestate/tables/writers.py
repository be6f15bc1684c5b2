"""The threads of this process that encode, upload and fill the cache. Parquet and sockets release the GIL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

from lakestate.observability.time_parts import ENCODE, beside
from lakestate.storage.parallel import InlineExecutor, is_sequential

P = ParamSpec("P")
T = TypeVar("T")

WRITERS_MAX = 4


def writers() -> Executor:
    """A pool of threads, or an executor that runs work at once if nothing may run in parallel."""
    return InlineExecutor() if is_sequential() else _threads()


def submit_write(write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Begin to encode and upload. The time counts for the subtask that waits for it."""
    return writers().submit(beside(ENCODE, write), *args, **kwargs)


@cache
def _threads() -> Executor:
    return ThreadPoolExecutor(WRITERS_MAX, thread_name_prefix="lakestate-write")
