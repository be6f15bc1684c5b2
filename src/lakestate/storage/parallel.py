"""Many small requests at once, answered in the order asked; and how a simulation takes the threads away.

The threads live as long as one call, so that nothing has to be closed and a fork is safe.
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
"""A store answers a request in tens of milliseconds; more threads only queue in its client."""

_ONE_AT_A_TIME: ContextVar[bool] = ContextVar("lakestate_one_at_a_time", default=False)


class InlineExecutor(Executor):
    """Runs work at once, in the caller's thread. A crash of the process is not kept in a future.

    >>> InlineExecutor().submit(max, 3, 5).result()
    5
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - a future hands over whatever was raised
            future.set_exception(error)
        return future


@contextmanager
def run_sequentially() -> Iterator[None]:
    """Inside, this thread of control starts no others: what must be the same every time needs that."""
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


def map_in_parallel(fetch: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """The answer for each item. The first error is raised; what has not begun is cancelled."""
    if len(items) < 2 or is_sequential():
        return [fetch(item) for item in items]
    with ThreadPoolExecutor(min(THREADS_MAX, len(items)), thread_name_prefix="lakestate-get") as pool:
        answers = [pool.submit(fetch, item) for item in items]
        try:
            return [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer.cancel()
