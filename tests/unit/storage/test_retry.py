from __future__ import annotations

import pytest

from lakestate.config import RetryPolicy
from lakestate.errors import StorageUnavailableError
from lakestate.storage.retry import Applied, Retrier, TransientFault


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(round(seconds, 6))
        self.now_s += seconds


def retrier(clock: Clock, share: float = 0.0, **policy: int) -> Retrier:
    return Retrier(RetryPolicy(**policy), lambda: clock.now_s, clock.sleep, lambda: share)


def failing(times: int, answer: str = "answer") -> object:
    left = iter(range(times))

    def attempt() -> str:
        if next(left, None) is not None:
            raise TransientFault("busy", Applied.NO)
        return answer

    return attempt


def test_the_first_answer_is_returned_without_waiting() -> None:
    clock = Clock()
    assert retrier(clock).run(failing(0), "object") == "answer"
    assert clock.waits_s == []


def test_waits_double_up_to_a_limit() -> None:
    clock = Clock()
    policy = {"deadline_ms": 10_000, "backoff_first_ms": 100, "backoff_max_ms": 500}
    assert retrier(clock, **policy).run(failing(5), "object") == "answer"
    assert clock.waits_s == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_waits_are_shortened_by_a_random_share() -> None:
    clock = Clock()
    retrier(clock, share=0.5, backoff_first_ms=100).run(failing(1), "object")
    assert clock.waits_s == [0.075]


def test_after_the_deadline_the_store_is_unavailable_and_the_reason_is_named() -> None:
    clock = Clock()
    with pytest.raises(StorageUnavailableError) as caught:
        retrier(clock, deadline_ms=1000, backoff_first_ms=100).run(failing(10**9), "store/object")
    assert caught.value.object_name == "store/object"
    assert caught.value.found == "busy"
    assert clock.now_s < 101.0


def test_a_slow_attempt_counts_towards_the_deadline() -> None:
    clock = Clock()
    calls = []

    def slow() -> None:
        calls.append(clock.now_s)
        clock.now_s += 20
        raise TransientFault("timeout", Applied.MAYBE)

    with pytest.raises(StorageUnavailableError):
        retrier(clock, deadline_ms=30_000).run(slow, "object")
    assert len(calls) == 2


def test_other_errors_are_not_tried_again() -> None:
    calls = []

    def broken() -> None:
        calls.append(1)
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        retrier(Clock()).run(broken, "object")
    assert calls == [1]


class LongWork:
    """Gets on by one step in each attempt, as far as the steps go, and never ends."""

    def __init__(self, clock: Clock, steps: int) -> None:
        self.clock, self.steps, self.done, self.calls = clock, steps, 0, 0

    def __call__(self) -> None:
        self.calls += 1
        self.done = min(self.done + 1, self.steps)
        self.clock.now_s += 20
        raise TransientFault("cut", Applied.NO)


def test_progress_starts_the_deadline_again() -> None:
    clock = Clock()
    work = LongWork(clock, steps=10)
    with pytest.raises(StorageUnavailableError, match="no progress within 30 s"):
        retrier(clock, deadline_ms=30_000).run(work, "object", lambda: work.done)
    assert work.calls == 12


def test_reaching_the_same_place_again_is_not_progress() -> None:
    clock = Clock()
    places = iter([5, 3, 5, 4])
    reached = [0]

    def attempt() -> None:
        clock.now_s += 10
        reached[0] = next(places)
        raise TransientFault("cut", Applied.NO)

    with pytest.raises(StorageUnavailableError):
        retrier(clock, deadline_ms=25_000).run(attempt, "object", lambda: reached[0])
    assert list(places) == []
