"""When an epoch without rows is due."""

from __future__ import annotations

import pytest

from lakestate.coordinator.engine.due_epochs import AT_ONCE_US, FollowedTime, TimeReached, due_at_us

EVENT = FollowedTime(event_time=True)
CLOCK = FollowedTime(processing_time=True)
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
    assert due_at_us(follows, TimeReached(watermark_us, next_us, wake_us)) == due_us


def test_a_job_that_follows_no_time_is_false() -> None:
    assert [bool(each) for each in (FollowedTime(), EVENT, CLOCK, BOTH)] == [False, True, True, True]
