"""Many small requests at once, answered in the order asked.

The threads live as long as one call, so that nothing has to be closed and a fork is safe.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")
Answer = TypeVar("Answer")

THREADS_MAX = 16
"""A store answers a request in tens of milliseconds; more threads only queue in its client."""


def in_parallel(fetch: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """The answer for each item. The first error is raised; what has not begun is cancelled."""
    if len(items) < 2:
        return [fetch(item) for item in items]
    with ThreadPoolExecutor(min(THREADS_MAX, len(items)), thread_name_prefix="lakestate-get") as pool:
        answers = [pool.submit(fetch, item) for item in items]
        try:
            return [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer.cancel()
