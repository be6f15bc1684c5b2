"""`ProgressLine`: one line about the newest epoch, rewritten on a terminal, appended elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from lakestate.observability.progress import EpochProgress
from lakestate.protocol.metadata import CompletionStatus
from lakestate.protocol.watermarks import instant

_REWRITE = "\r\x1b[2K"


class ProgressLine:
    """An `EpochListener` for people: `pipeline.start(listeners=[ProgressLine()])`.

    It writes to standard error by default. On a terminal every epoch rewrites the line, and the line of
    the last epoch stays; call `close` if the job ends without a last epoch.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_open = False

    def on_epoch(self, progress: EpochProgress) -> None:
        """Show an epoch."""
        line = progress_text(progress)
        if not self._stream.isatty():
            print(line, file=self._stream, flush=True)
            return
        # A line that wraps cannot be rewritten.
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"{_REWRITE}{line[:width]}")
        self._stream.flush()
        self._is_open = True
        if progress.status is CompletionStatus.FINAL:
            self.close()

    def close(self) -> None:
        """End the line, so that further output starts on a new one."""
        if self._is_open:
            print(file=self._stream, flush=True)
            self._is_open = False


def progress_text(progress: EpochProgress) -> str:
    """The text of the line.

    >>> from lakestate.protocol.metadata import StateSummary
    >>> print(progress_text(EpochProgress(
    ...     job_id="totals", epoch=7, status=CompletionStatus.COMPLETE, watermark_us=90_000_000,
    ...     lag_ms=1500, rows={"bids": 50_000}, late_rows={"bids": 3}, operators={},
    ...     state=StateSummary(12, 1000, 3_400_000, 210_000), durations_ms={"total": 800.0})))
    totals  epoch 7  50,000 rows in 0.80 s (62,500/s)  3 late  state 3.4 MB in 12 files  +210.0 kB
        watermark 1970-01-01 00:01:30
    """
    total_s = progress.durations_ms.get("total", 0.0) / 1000
    late, state = sum(progress.late_rows.values()), progress.state
    parts = [
        progress.job_id,
        f"epoch {progress.epoch}",
        f"{progress.rows_total:,} rows in {total_s:.2f} s" + _rate(progress.rows_total, total_s),
        f"{late:,} late" if late else "",
        f"state {bytes_text(state.size_bytes)} in {state.file_count:,} files",
        f"+{bytes_text(state.bytes_written)}",
        f"time {progress.clock_ahead_ms / 1000:,.0f} s ahead of the clock" if progress.clock_ahead_ms else "",
        f"watermark {_time(progress.watermark_us)}" if progress.watermark_us is not None else "",
    ]
    return "  ".join(part for part in parts if part)


def bytes_text(count: int) -> str:
    """A number of bytes in readable units.

    >>> bytes_text(999), bytes_text(1_234), bytes_text(5_600_000_000)
    ('999 B', '1.2 kB', '5.6 GB')
    """
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _rate(rows: int, seconds: float) -> str:
    return f" ({rows / seconds:,.0f}/s)" if rows and seconds else ""


def _time(time_us: int) -> str:
    return f"{instant(time_us):%Y-%m-%d %H:%M:%S}"
