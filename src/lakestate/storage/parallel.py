"""Runs many small requests in parallel and returns the answers in order, or runs them sequentially.

Threads live only as long as one call, so nothing has to be closed and forking is safe. A simulation
runs everything sequentially, because it needs the same order every time.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Item = TypeVar("Item")
Answer = TypeVar("Answer")

THREADS_MAX = 16
"""A store answers in tens of milliseconds. More threads would only queue in its client."""

_ONE_AT_A_TIME: ContextVar[bool] = ContextVar("lakestate_one_at_a_time", default=False)


class InlineExecutor(Executor):
    """Runs work immediately, in the caller's thread. Only `Exception`s are kept in the future.

    >>> InlineExecutor().submit(max, 3, 5).result()
    5
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the function now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - a future passes on whatever was raised
            future.set_exception(error)
        return future


@contextmanager
def run_sequentially() -> Iterator[None]:
    """Start no threads inside this context, so that the order of requests is always the same."""
    token = _ONE_AT_A_TIME.set(True)
    try:
        yield
    finally:
        _ONE_AT_A_TIME.reset(token)


def is_sequential() -> bool:
    """Whether the caller is inside `run_sequentially`.

    >>> with run_sequentially():
    ...     is_sequential()
    True
    """
    return _ONE_AT_A_TIME.get()


def map_in_parallel(
    fetch: Callable[[Item], Answer], items: Sequence[Item], threads_max: int = THREADS_MAX
) -> list[Answer]:
    """The result for each item, in order. Raises the first error and cancels what has not started."""
    if len(items) < 2 or is_sequential():
        return [fetch(item) for item in items]
    with ThreadPoolExecutor(min(threads_max, len(items)), thread_name_prefix="lakestate-get") as pool:
        answers = [pool.submit(fetch, item) for item in items]
        try:
            return [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer.cancel()
