"""Trying again while a fault may pass, within one deadline.

Knows no store: an attempt says by `TransientFault` that it is worth repeating, and whether it may
have changed something. Clock, sleep and randomness are passed in.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from lakestate.config import RetryPolicy
from lakestate.errors import StorageUnavailableError

Answer = TypeVar("Answer")


class Applied(Enum):
    """Whether a failed attempt may have changed something."""

    NO = "no"
    MAYBE = "maybe"


class TransientFault(Exception):  # noqa: N818 - never leaves the storage layer
    """An attempt failed in a way that may pass. The reason carries no credential."""

    def __init__(self, reason: str, applied: Applied) -> None:
        super().__init__(reason)
        self.reason = reason
        self.applied = applied


@dataclass(frozen=True, slots=True)
class Retrier:
    """Runs attempts under a policy.

    >>> Retrier(RetryPolicy()).run(lambda: 42, object_name="memory://example/answer")
    42
    """

    policy: RetryPolicy
    clock_s: Callable[[], float] = time.monotonic
    sleep_s: Callable[[float], None] = time.sleep
    share: Callable[[], float] = random.random

    def run(self, attempt: Callable[[], Answer], object_name: str) -> Answer:
        """The answer of the first attempt that succeeds before the deadline."""
        deadline_s = self.clock_s() + self.policy.deadline_ms / 1000
        for wait_s in self._waits_s():
            try:
                return attempt()
            except TransientFault as fault:
                reason = fault.reason
            if self.clock_s() + wait_s >= deadline_s:
                break
            self.sleep_s(wait_s)
        raise StorageUnavailableError(
            f"the store did not answer within {self.policy.deadline_ms / 1000:g} s",
            object_name=object_name,
            found=reason,
            action="check that the store is reachable and the credentials are valid, then try again",
        )

    def _waits_s(self) -> Iterator[float]:
        wait_ms = float(self.policy.backoff_first_ms)
        while True:
            yield wait_ms / 1000 * (1 - self.share() / 2)
            wait_ms = min(wait_ms * 2, self.policy.backoff_max_ms)
