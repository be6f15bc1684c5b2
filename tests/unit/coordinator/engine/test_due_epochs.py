"""When an epoch without rows is due."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakestate.coordinator.engine.due_epochs import (
    AT_ONCE_US,
    DueEpochs,
    FollowedTime,
    TimeReached,
    due_at_us,
)

EVENT = FollowedTime(event_time=True)
CLOCK = FollowedTime(processing_time=True)
OUTPUT = FollowedTime(output_time=True)
BOTH = FollowedTime(event_time=True, processing_time=True)


@pytest.mark.parametrize(
    ("follows", "watermark_us", "next_us", "wake_us", "due_us"),
    [
        pytest.param(EVENT, None, None, None, None, id="there is no watermark yet"),
        pytest.param(EVENT, None, 5, None, AT_ONCE_US, id="there is a first watermark"),
        pytest.param(EVENT, 5, 6, None, AT_ONCE_US, id="the watermark has moved"),
        pytest.param(EVENT, 6, 6, None, None, id="the watermark stands still"),
        pytest.param(EVENT, 6, 6, 70, None, id="nobody follows the clock"),
        pytest.param(CLOCK, 5, 6, None, None, id="nobody follows the watermark"),
        pytest.param(CLOCK, 5, 6, 70, 70, id="somebody asked for a time"),
        pytest.param(CLOCK, 5, 5, AT_ONCE_US, AT_ONCE_US, id="nobody knows what was asked for"),
        pytest.param(BOTH, 5, 5, 70, 70, id="of two reasons only the clock is left"),
        pytest.param(BOTH, 5, 6, 70, AT_ONCE_US, id="the earlier of two reasons counts"),
        pytest.param(FollowedTime(), 5, 6, 70, None, id="a job that follows no time"),
    ],
)
def test_an_epoch_is_due_for_the_times_that_are_followed(
    follows: FollowedTime,
    watermark_us: int | None,
    next_us: int | None,
    wake_us: int | None,
    due_us: int | None,
) -> None:
    assert due_at_us(follows, TimeReached(watermark_us, next_us, None, wake_us)) == due_us


def test_an_epoch_is_due_when_an_idle_source_lets_the_watermark_move() -> None:
    assert due_at_us(EVENT, TimeReached(5, 5, 40, None)) == 40
    assert due_at_us(EVENT, TimeReached(5, 6, 40, None)) == AT_ONCE_US
    assert due_at_us(BOTH, TimeReached(5, 5, 40, 30)) == 30
    assert due_at_us(CLOCK, TimeReached(5, 5, 40, None)) is None


def test_an_epoch_is_due_when_a_sink_waits_for_it() -> None:
    assert due_at_us(OUTPUT, TimeReached(5, 6, 40, AT_ONCE_US, 70)) == 70
    assert due_at_us(OUTPUT, TimeReached(5, 6, 40, AT_ONCE_US, None)) is None
    assert due_at_us(CLOCK, TimeReached(5, 6, 40, 80, 70)) == 80


def test_a_job_that_follows_no_time_is_false() -> None:
    follows = (FollowedTime(), EVENT, CLOCK, OUTPUT, BOTH)
    assert [bool(each) for each in follows] == [False, True, True, True, True]


class TestDueEpochs:
    """The newest epoch began at 1,000 ms and ended at 1,100 ms."""

    def due(
        self, now_ms: int, follows: FollowedTime = CLOCK, moves_at_us: int | None = None, **options: Any
    ) -> DueEpochs:
        newest = SimpleNamespace(watermark_us=5, started_ms=1_000, finished_ms=1_100)
        planner = SimpleNamespace(
            next_watermark_us=lambda newest, watched: 5, moves_at_us=lambda newest, watched: moves_at_us
        )
        driver: Any = SimpleNamespace(
            parent=newest, planner=planner, now_ms=lambda: now_ms, watched=lambda silent_us: None
        )
        return DueEpochs(driver, follows, **options)

    def test_a_source_becomes_idle_by_the_clock_only_if_somebody_looks_for_rows(self) -> None:
        assert self.due(1_200, EVENT, 1_150_000).is_due()
        assert self.due(1_200, EVENT, 1_500_000).due_in_us() == 300_000
        assert self.due(1_200, EVENT, 1_150_000, is_polled=False).due_in_us() is None

    def test_after_a_start_nobody_knows_what_was_asked_for_and_one_epoch_is_due(self) -> None:
        due = self.due(1_200)
        assert due.is_due()
        due.note_epoch(None)
        assert (due.is_due(), due.due_in_us()) == (False, None)
        due.forget()
        assert due.is_due()

    def test_an_epoch_is_due_when_the_time_has_come(self) -> None:
        due = self.due(1_200)
        due.note_epoch(1_500_000)
        assert (due.is_due(), due.due_in_us()) == (False, 300_000)
        due.note_epoch(1_200_000)
        assert (due.is_due(), due.due_in_us()) == (True, 0)

    def test_what_sinks_wait_for_is_known_after_a_start(self) -> None:
        assert self.due(1_200, OUTPUT, outputs_due_us=lambda newest: 1_500_000).due_in_us() == 300_000
        assert self.due(1_200, OUTPUT, outputs_due_us=lambda newest: newest.started_ms * 1_000).is_due()
        assert self.due(1_200, OUTPUT).due_in_us() is None

    def test_sources_are_silent_only_if_somebody_looks_for_rows(self) -> None:
        driver: Any = SimpleNamespace(now_ms=lambda: 7)
        assert DueEpochs(driver, BOTH).silent_us() == 7_000
        assert DueEpochs(driver, BOTH, is_polled=False).silent_us() is None

    def test_what_an_epoch_was_run_for_is_not_asked_for_again(self) -> None:
        due = self.due(1_050)
        due.note_epoch(1_000_000)
        # The time of the job is that of its newest epoch, although the clock is behind.
        assert due.due_in_us() == 1_000_001 - 1_100_000

    def test_a_job_that_follows_no_time_or_has_no_epoch_waits_for_nothing(self) -> None:
        assert self.due(1_200, FollowedTime()).due_in_us() is None
        driver: Any = SimpleNamespace(parent=None)
        assert DueEpochs(driver, BOTH).due_in_us() is None
