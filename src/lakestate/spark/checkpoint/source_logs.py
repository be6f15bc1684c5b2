"""The logs in which file sources record what they have read, as an epoch stores them.

Spark writes one small log for each batch, and from time to time a compacted one that repeats all before
it. Such a log grows for as long as the job runs, so it is neither stored again nor read again: its
content is what was stored of the logs it replaces, and the few lines behind that, which are new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakestate.codec.engine_files import SourceLog, needed_logs
from lakestate.coordinator.engine.logs import VERSION
from lakestate.coordinator.epoch_plan import LogUpdate
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import EngineLog, Manifest, NamedBytes
from lakestate.protocol.values import ObjectRef

INLINE_BYTES_MAX = 4 * 1024
"""A log up to this size is part of the manifest. There are at most as many as Spark compacts at a time."""

PIECE_BYTES_MAX = 4 << 20
"""Pieces of a log are joined up to this size, so that there are few, and none is written very often."""

Part = ObjectRef | bytes


@dataclass(frozen=True, slots=True)
class LogContent:
    """What an epoch stores of one log, and which of it is new and so has not been checked yet."""

    log: SourceLog
    """Without content, if that is kept in pieces."""
    parts: tuple[Part, ...] | None = None
    """The pieces, or None if the log is part of the manifest."""
    new: bytes = b""
    """The content that no earlier epoch had, with its version."""

    @property
    def update(self) -> LogUpdate | None:
        """The log as the driver stores it, if it is kept in pieces."""
        return None if self.parts is None else LogUpdate(self.log.name, self.parts)


class LogsBefore:
    """What the epoch before stored of the logs of all sources."""

    def __init__(self, manifest: Manifest | None) -> None:
        files: Sequence[NamedBytes] = () if manifest is None else manifest.engine_files
        logs: Sequence[EngineLog] = () if manifest is None else manifest.engine_logs
        self._inline = {file.name: file.data for file in files}
        self._pieces = {log.name: log.pieces for log in logs}

    @property
    def names(self) -> set[str]:
        """The names of all logs."""
        return {*self._pieces, *(name for name in self._inline if name.startswith("sources/"))}

    def find(self, log: SourceLog) -> LogContent | None:
        """What was stored of a log, or None if it is new."""
        if log.name in self._pieces:
            return LogContent(log, self._pieces[log.name])
        data = self._inline.get(log.name)
        return None if data is None else LogContent(SourceLog(log.source, log.number, log.is_compacted, data))

    def body_of(self, source: str, number: int) -> tuple[Part, ...] | None:
        """What was stored of a source up to a log, or None if that log is not the last one."""
        parsed = (SourceLog.parse(name, b"") for name in self.names)
        logs = needed_logs(log for log in parsed if log is not None)
        mine = [log for log in logs if log.source == source]
        if not mine or mine[-1].number != number:
            return None
        parts: list[Part] = []
        for log in mine:
            parts += self._pieces.get(log.name) or (self._inline[log.name].removeprefix(VERSION),)
        return tuple(parts)


def read_logs(directory: Path, before: LogsBefore) -> Iterator[LogContent]:
    """The logs that Spark needs to continue. Reads only what the epoch before did not have."""
    for log, path in _needed_files(directory):
        yield before.find(log) or _read_new(log, path, before)


def _read_new(log: SourceLog, path: Path, before: LogsBefore) -> LogContent:
    if log.is_compacted:
        known = before.body_of(log.source, log.number - 1)
        if known is not None and (content := _read_behind(log, path, known)) is not None:
            return content
    data = path.read_bytes()
    if len(data) <= INLINE_BYTES_MAX or not data.startswith(VERSION + b"\n"):
        return LogContent(SourceLog(log.source, log.number, log.is_compacted, data), None, data)
    return LogContent(log, _cut(data.removeprefix(VERSION)), data)


def _read_behind(log: SourceLog, path: Path, known: tuple[Part, ...]) -> LogContent | None:
    """A compacted log that repeats what is known and adds something; None if it is not such a log."""
    start = len(VERSION) + sum(map(_size, known))
    with path.open("rb") as file:
        is_log = file.read(len(VERSION) + 1) == VERSION + b"\n"
        file.seek(start)
        new = file.read()
    if not is_log or not new.startswith(b"\n"):
        return None
    return LogContent(log, _join_small((*known, new), path), VERSION + new)


def _join_small(parts: tuple[Part, ...], path: Path) -> tuple[Part, ...]:
    """Fewer parts: neighbours at the end of similar size become one, as runs of a table do.

    What has to be written again is in the log itself, so nothing is fetched.
    """
    ends = [len(VERSION)]
    for part in parts:
        ends.append(ends[-1] + _size(part))
    first = len(parts) - 1
    while first and _is_worth_joining(_size(parts[first - 1]), ends[-1] - ends[first], parts[first - 1]):
        first -= 1
    if first == len(parts) - 1:
        return parts
    with path.open("rb") as file:
        file.seek(ends[first])
        joined = file.read(ends[-1] - ends[first])
    return (*parts[:first], joined)


def _is_worth_joining(size_bytes: int, behind_bytes: int, part: Part) -> bool:
    if isinstance(part, bytes):
        return True
    return size_bytes <= behind_bytes and size_bytes + behind_bytes <= PIECE_BYTES_MAX


def _cut(data: bytes) -> tuple[Part, ...]:
    return tuple(data[start : start + PIECE_BYTES_MAX] for start in range(0, len(data), PIECE_BYTES_MAX))


def _size(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part.size_bytes


def _needed_files(directory: Path) -> Iterator[tuple[SourceLog, Path]]:
    """The logs without those that a compacted log replaces."""
    paths = [path for log in (directory / "sources").glob("*") for path in log.iterdir() if path.is_file()]
    named = {str(path.relative_to(directory)): path for path in paths if _is_log(path.name)}
    for log in needed_logs(_parse_names(named).values()):
        yield log, named[log.name]


def _parse_names(named: Mapping[str, Path]) -> dict[str, SourceLog]:
    logs: dict[str, SourceLog] = {}
    for name in sorted(named):
        log = SourceLog.parse(name, b"")
        if log is None:
            raise InvalidInputError(
                "a source keeps a file of its own kind in Spark's checkpoint directory",
                object_name=name,
                expected="logs that are named by a number, as Spark's own sources keep them",
                action="read this source in a job of its own, without Lakestate, and read what that job "
                "writes",
            )
        logs[name] = log
    return logs


def _is_log(name: str) -> bool:
    # Hadoop's checksums and half-written files begin with a dot.
    return not name.startswith(".") and not name.endswith(".tmp")
