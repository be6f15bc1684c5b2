"""What happens to output files: one event when a file is opened, rolled, finished, committed.

Events of a subtask travel with the report of the attempt that counted, so that an attempt that failed
tells of nothing. They cost something for each file, and nothing for each row.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

FILE_EVENTS_KEPT = 1_000
"""An `EpochProgress` lists so many events. Listeners and the log get all of them."""

_log = logging.getLogger("lakestate.files")


class FileEventKind(StrEnum):
    """What happened to a file."""

    OPENED = "opened"
    ROLLED = "rolled"
    """It takes no more rows; `reason` says why."""
    FINISHED = "finished"
    """It is complete and durable, and readers do not see it."""
    COMMITTED = "committed"
    """Readers see it."""
    SHOWN = "shown"
    """Readers see it until the file whose rows it shows is committed: see `Roll.visible`."""


@dataclass(frozen=True, slots=True)
class FileEvent:
    """Something that happened to one output file.

    >>> print(FileEvent(
    ...     FileEventKind.ROLLED, "shop", "out", subtask_index=0, path="country=DE/part-1.parquet",
    ...     partition="country=DE", epoch=9, opened_epoch=7, rows=120, size_bytes=4096, reason="interval"))
    shop: out rolled country=DE/part-1.parquet by interval, 120 rows, 4,096 bytes, epochs 7 to 9
    """

    kind: FileEventKind
    job_id: str
    sink_id: str
    subtask_index: int
    """The subtask that did it; of a committed file, the one that finished it."""
    path: str
    """Below the URL of the sink, or below the data location of a table."""
    partition: str
    """The folders of the path; empty without partitions."""
    epoch: int
    """The epoch in which it happened. A file is finished and committed in the same epoch."""
    opened_epoch: int | None
    """The epoch in which the file was opened; None if its name does not say so."""
    rows: int = 0
    size_bytes: int = 0
    """Until the file is finished, about the size that it would have if it ended now."""
    reason: str | None = None
    """Why it was rolled: see `Roll`."""

    @property
    def finished_epoch(self) -> int | None:
        """The epoch in which the file was finished, if it is."""
        is_over = self.kind in (FileEventKind.FINISHED, FileEventKind.COMMITTED, FileEventKind.SHOWN)
        return self.epoch if is_over else None

    @property
    def committed_epoch(self) -> int | None:
        """The epoch with which the file was committed, if it is."""
        return self.epoch if self.kind in (FileEventKind.COMMITTED, FileEventKind.SHOWN) else None

    def __str__(self) -> str:
        if self.kind is FileEventKind.OPENED:
            return f"{self.job_id}: {self.sink_id} opened {self.path}, epoch {self.epoch}"
        reason = "" if self.reason is None else f" by {self.reason}"
        first = self.epoch if self.opened_epoch is None else self.opened_epoch
        epochs = f"epoch {self.epoch}" if first == self.epoch else f"epochs {first} to {self.epoch}"
        return (
            f"{self.job_id}: {self.sink_id} {self.kind} {self.path}{reason}, {self.rows:,} rows, "
            f"{self.size_bytes:,} bytes, {epochs}"
        )


TellFileEvents = Callable[[Sequence[FileEvent]], None]
"""Takes events in the order in which they happened."""


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """How many files of one sink were opened, rolled, finished and committed in one epoch."""

    opened: int = 0
    finished: int = 0
    committed: int = 0
    rolled: Mapping[str, int] = field(default_factory=dict)
    """By reason."""
    rows_committed: int = 0
    bytes_committed: int = 0
    shown: int = 0
    """Small files with rows of open ones. Their rows are counted when those are committed."""

    @classmethod
    def of(cls, events: Iterable[FileEvent]) -> OutputFiles:
        """The sums over events of one sink."""
        found = list(events)
        kinds = Counter(event.kind for event in found)
        committed = [event for event in found if event.kind is FileEventKind.COMMITTED]
        return cls(
            kinds[FileEventKind.OPENED],
            kinds[FileEventKind.FINISHED],
            len(committed),
            dict(Counter(event.reason for event in found if event.reason is not None)),
            sum(event.rows for event in committed),
            sum(event.size_bytes for event in committed),
            kinds[FileEventKind.SHOWN],
        )


def sum_by_sink(events: Iterable[FileEvent]) -> dict[str, OutputFiles]:
    """What happened to the files of each sink."""
    by_sink: dict[str, list[FileEvent]] = {}
    for event in events:
        by_sink.setdefault(event.sink_id, []).append(event)
    return {sink_id: OutputFiles.of(found) for sink_id, found in by_sink.items()}


def log_file_events(events: Sequence[FileEvent]) -> None:
    """Write one record for each event, with the event as its only argument."""
    if _log.isEnabledFor(logging.INFO):
        for event in events:
            _log.info("%s", event)
