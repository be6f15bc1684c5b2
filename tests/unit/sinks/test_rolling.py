from __future__ import annotations

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.sinks.rolling import FileAge, Roll, RollReason, representative_timestamp

FILE = FileAge(size_bytes=1_000, opened_ms=10_000, written_ms=15_000, partition_end_us=60_000_000)


@pytest.mark.parametrize(
    ("roll", "now_ms", "watermark_us", "reason"),
    [
        (Roll(bytes=1_001, interval=None), 10**12, None, None),
        (Roll(bytes=1_000, interval=None), 0, None, RollReason.BYTES),
        (Roll(interval="5 seconds"), 14_999, None, None),
        (Roll(interval="5 seconds"), 15_000, None, RollReason.INTERVAL),
        (Roll(interval=None, inactivity="5 seconds"), 19_999, None, None),
        (Roll(interval=None, inactivity="5 seconds"), 20_000, None, RollReason.INACTIVITY),
        (Roll(interval=None, past_watermark="0 seconds"), 0, None, None),
        (Roll(interval=None, past_watermark="0 seconds"), 0, 59_999_999, None),
        (Roll(interval=None, past_watermark="0 seconds"), 0, 60_000_000, RollReason.PAST_WATERMARK),
        (Roll(interval=None, past_watermark="1 minute"), 0, 119_999_999, None),
        (Roll(interval=None, past_watermark="1 minute"), 0, 120_000_000, RollReason.PAST_WATERMARK),
    ],
)
def test_a_file_is_finished_for_a_reason(
    roll: Roll, now_ms: int, watermark_us: int | None, reason: RollReason | None
) -> None:
    assert roll.reason_now(FILE, now_ms, watermark_us) is reason


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("roll", "ahead_ms", "reason"),
    [
        (Roll(interval="1 minute"), HOUR_MS, None),
        (Roll(interval="1 minute"), HOUR_MS + 1, RollReason.INTERVAL),
        (Roll(interval=None, inactivity="1 minute"), HOUR_MS + 1, RollReason.INTERVAL),
        (Roll(interval=None), HOUR_MS + 1, None),
    ],
)
def test_a_file_that_was_opened_by_a_clock_far_ahead_does_not_stay_open(
    roll: Roll, ahead_ms: int, reason: RollReason | None
) -> None:
    file = FileAge(size_bytes=1_000, opened_ms=ahead_ms, written_ms=ahead_ms)
    assert roll.reason_now(file, 0, None) is reason


@pytest.mark.parametrize("settings", [{"bytes": 0}, {"bytes": "many"}, {"interval": "soon"}])
def test_a_policy_that_says_nothing_is_refused(settings: dict[str, int | str]) -> None:
    with pytest.raises(InvalidInputError):
        Roll(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "unit", "time_us"),
    [
        ([5, 6], "s", 5_000_000),
        ([None, 6], "us", 6),
        ([7_999], "ns", 7),
        ([], "us", None),
        ([None], "us", None),
    ],
)
def test_the_representative_timestamp_is_the_first_there_is(
    values: list[int | None], unit: str, time_us: int | None
) -> None:
    assert representative_timestamp(pa.array(values, pa.timestamp(unit, "UTC"))) == time_us


def test_only_times_have_a_representative_timestamp() -> None:
    with pytest.raises(InvalidInputError, match="event times"):
        representative_timestamp(pa.array([1]))


def test_a_file_cannot_be_rolled_beyond_what_a_store_takes() -> None:
    with pytest.raises(InvalidInputError, match="files of so many bytes cannot be written"):
        Roll(bytes="3TB")
