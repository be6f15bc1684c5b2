"""When an open file is finished and the next one is begun. Pure: facts in, a reason or None out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.config import duration_us, size_bytes
from lakestate.coordinator.job_clock import CLOCK_TOLERANCE_MS
from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.writer_state import FILE_BYTES_MAX
from lakestate.sinks.text_options import option, parse_optional_duration, parse_size


class RollReason(Enum):
    """Why a file was finished."""

    BYTES = "bytes"
    INTERVAL = "interval"
    INACTIVITY = "inactivity"
    PAST_WATERMARK = "past_watermark"
    PARTS = "parts"
    """Its upload cannot take many more parts."""
    OPEN_FILES = "open_files"
    """The subtask has as many open files as it may have, and this is the oldest."""
    SCHEMA = "schema"
    """Rows have other columns now, or the table has another schema or partition spec."""
    RESCALE = "rescale"
    """After rescaling, the subtask has a newer file of the same partition."""
    VISIBLE = "visible"
    """A small file with rows of an open one becomes visible, as `Roll(visible=…)` says."""
    SNAPSHOT = "snapshot"
    """A copy of the open file is wanted, and its uploaded parts can be read only when it is finished."""
    STOP = "stop"
    """All files are finished, because the job stops."""


@dataclass(frozen=True, slots=True)
class Roll:
    """When files are finished: as soon as one of these conditions holds.

    `interval` is the age of the oldest row in the file by the clock, `inactivity` the time since
    the last. `past_watermark` finishes the file of a partition by event time when the watermark
    has passed the end of the partition by that much. None switches one of these three off; `bytes`
    always applies.

    `visible` finishes nothing: rows of an open file become visible in a small file when the first of them
    is that old, and the file takes the place of its small ones when it is finished. Only tables can do that.

    >>> Roll(bytes="1MB", interval="1 minute").bytes_max
    1000000
    """

    bytes: int | str = field(default="128MB", metadata=option("rollSize", parse_size))
    interval: timedelta | str | None = field(
        default="5 minutes", metadata=option("rollInterval", parse_optional_duration)
    )
    inactivity: timedelta | str | None = field(
        default=None, metadata=option("rollInactivity", parse_optional_duration)
    )
    past_watermark: timedelta | str | None = field(
        default=None, metadata=option("rollPastWatermark", parse_optional_duration)
    )
    visible: timedelta | str | None = None

    def __post_init__(self) -> None:
        if self.bytes_max < 1:
            raise InvalidInputError("a file cannot be rolled at 0 bytes", found=self.bytes)
        if self.bytes_max > FILE_BYTES_MAX // 2:
            raise InvalidInputError(
                "files of so many bytes cannot be written",
                found=self.bytes,
                expected=f"at most {FILE_BYTES_MAX // 2:,}",
            )
        for duration in (self.interval, self.inactivity, self.past_watermark, self.visible):
            _optional_us(duration)

    @property
    def bytes_max(self) -> int:
        """The size at which a file is finished."""
        return size_bytes(self.bytes)

    @property
    def past_watermark_us(self) -> int | None:
        """How far behind the watermark the end of a partition must be."""
        return _optional_us(self.past_watermark)

    def reason_now(self, file: FileAge, now_ms: int, watermark_us: int | None) -> RollReason | None:
        """Why the file must be finished now, or None. Evaluated at the end of every epoch.

        >>> young = FileAge(size_bytes=10, opened_ms=0, written_ms=0)
        >>> Roll(interval="1 second").reason_now(young, 999, None) is None
        True
        >>> Roll(interval="1 second").reason_now(young, 1000, None)
        <RollReason.INTERVAL: 'interval'>
        """
        if file.size_bytes >= self.bytes_max:
            return RollReason.BYTES
        if self._needs_clock and max(file.opened_ms, file.written_ms) - now_ms > CLOCK_TOLERANCE_MS:
            # Written by a clock that was wrong: nobody knows how old it is, and it would stay open for ever.
            return RollReason.INTERVAL
        if _is_over(self.interval, file.opened_ms, now_ms):
            return RollReason.INTERVAL
        if _is_over(self.inactivity, file.written_ms, now_ms):
            return RollReason.INACTIVITY
        if self._is_past(file.partition_end_us, watermark_us):
            return RollReason.PAST_WATERMARK
        return None

    def is_due_to_show(self, since_ms: int, now_ms: int) -> bool:
        """Whether rows must become visible now that readers could have seen since then.

        >>> Roll(visible="10 seconds").is_due_to_show(5_000, 14_999)
        False
        """
        return _is_over(self.visible, since_ms, now_ms) or since_ms - now_ms > CLOCK_TOLERANCE_MS

    def due_ms(self, file: FileAge, shows_since_ms: int | None = None) -> int | None:
        """When the clock finishes the file or shows rows of it, if nothing is added; None if it never does.

        `shows_since_ms` is the time of its first row that readers cannot see, if they are to.

        >>> Roll(interval="5 minutes", inactivity="1 minute").due_ms(FileAge(10, 0, 250_000))
        300000
        """
        due_us = [
            since_ms * 1000 + limit_us
            for duration, since_ms in (
                (self.interval, file.opened_ms),
                (self.inactivity, file.written_ms),
                (self.visible, shows_since_ms),
            )
            if (limit_us := _optional_us(duration)) is not None and since_ms is not None
        ]
        return -(-min(due_us) // 1000) if due_us else None

    @property
    def follows_clock(self) -> bool:
        """Whether time alone finishes files, or shows rows of them."""
        return self._needs_clock or self.visible is not None

    @property
    def _needs_clock(self) -> bool:
        return self.interval is not None or self.inactivity is not None

    def _is_past(self, end_us: int | None, watermark_us: int | None) -> bool:
        delay_us = self.past_watermark_us
        if delay_us is None or end_us is None or watermark_us is None:
            return False
        return watermark_us >= end_us + delay_us


@dataclass(frozen=True, slots=True)
class FileAge:
    """What a roll policy looks at."""

    size_bytes: int
    opened_ms: int
    written_ms: int
    partition_end_us: int | None = None


def representative_timestamp(column: pa.Array | pa.ChunkedArray) -> int | None:
    """The first time in an event-time column, in microseconds. It identifies the partition of time.

    >>> representative_timestamp(pa.array([None, 7, 9], pa.timestamp("ms")))
    7000
    """
    if not pa.types.is_timestamp(column.type):
        raise InvalidInputError("not a column of event times", found=column.type, expected="timestamp")
    first = column[:1] if len(column) and column[0].is_valid else column.drop_null()[:1]
    if not len(first):
        return None
    return int(pc.cast(first, pa.timestamp("us"), safe=False).cast(pa.int64())[0].as_py())


def _optional_us(duration: timedelta | str | None) -> int | None:
    return None if duration is None else duration_us(duration)


def _is_over(duration: timedelta | str | None, since_ms: int, now_ms: int) -> bool:
    limit_us = _optional_us(duration)
    return limit_us is not None and (now_ms - since_ms) * 1000 >= limit_us
