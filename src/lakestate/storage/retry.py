"""Retries transient faults until a deadline, which is extended by progress.

Independent of any store: an attempt raises `TransientFault` to say that it is worth repeating, and
whether it may have changed something. Clock, sleep and randomness are passed in.
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
    """An attempt failed for a reason that may be temporary. The reason contains no credential."""

    def __init__(self, reason: str, applied: Applied) -> None:
        super().__init__(reason)
        self.reason = reason
        self.applied = applied


def no_progress() -> int:
    """The progress of a call that is a single request: none until it succeeds."""
    return 0


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

    def run(
        self, attempt: Callable[[], Answer], object_name: str, progress: Callable[[], int] = no_progress
    ) -> Answer:
        """The result of the first attempt that succeeds before the deadline.

        For work made of many requests, `progress` says how far the attempts have come. Getting
        further than before restarts the deadline. Reaching the same point again does not, so the
        call always ends.
        """
        deadline_s, waits_s, furthest = self._deadline_s(), self._waits_s(), progress()
        while True:
            try:
                return attempt()
            except TransientFault as fault:
                reason = fault.reason
            if progress() > furthest:
                deadline_s, waits_s, furthest = self._deadline_s(), self._waits_s(), progress()
            wait_s = next(waits_s)
            if self.clock_s() + wait_s >= deadline_s:
                raise self._unavailable(object_name, reason, furthest)
            self.sleep_s(wait_s)

    def _deadline_s(self) -> float:
        return self.clock_s() + self.policy.deadline_ms / 1000

    def _unavailable(self, object_name: str, reason: str, furthest: int) -> StorageUnavailableError:
        # After some progress, neither the address nor the credentials can be wrong.
        what, check = (
            ("the store did not answer", "check that the store is reachable and the credentials are valid")
            if furthest == 0
            else ("the store answered at first, then stalled: no progress", "check the store and the network")
        )
        return StorageUnavailableError(
            f"{what} within {self.policy.deadline_ms / 1000:g} s",
            object_name=object_name,
            found=reason,
            action=f"{check}, then try again",
        )

    def _waits_s(self) -> Iterator[float]:
        wait_ms = float(self.policy.backoff_first_ms)
        while True:
            yield wait_ms / 1000 * (1 - self.share() / 2)
            wait_ms = min(wait_ms * 2, self.policy.backoff_max_ms)
