"""Spark's own files as a manifest holds them: exactly those that an epoch needs, and each one checked.

Spark believes what is in its checkpoint directory: it runs a batch whose offsets are there, reads the files
that a source's log names, and with `cleanSource` deletes them. So a manifest is not trusted with more than
the state of one finished batch: its offsets and those of the batch before, and the logs of the sources up to
these offsets. Everything else is refused, because only somebody else can have put it there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from uuid import UUID, uuid5

from lakestate.errors import CorruptionError
from lakestate.protocol.metadata import NamedBytes
from lakestate.protocol.values import Epoch

METADATA = "metadata"
COMMITTED_BATCH = b'v1\n{"nextBatchWatermarkMs":0}'
"""What Spark writes to `commits/N` after a batch of a query without state."""

SINK_SCHEMA = "sink/schema.arrow"
"""The only file of a job of `writeStream.format("lakestate")`: the schema of its rows, needed to finish open
files when there are no rows. Spark keeps the offsets of such a job itself."""

_CONF_NAME = re.compile(r"spark\.sql\.[A-Za-z0-9.]{1,200}")
_CONF_VALUE_CHARS_MAX = 200
_STATE_STORE_CLASS = "spark.sql.streaming.stateStore.providerClass"
_LOG_NAME = re.compile(r"sources/([A-Za-z0-9_-]{1,200})/(0|[1-9][0-9]{0,18})(\.compact)?")
_TEXT = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*")
_QUERY_IDS = UUID("5d1c2f0e-64a5-4e0b-9d57-8a3f6d2b7c41")
_LOST_AND_FOUND = "restore the manifest, or start from an intact epoch with start(from_epoch=…)"


@dataclass(frozen=True, slots=True)
class SourceLog:
    """One file of the log in which a source records what it has read.

    A compacted log replaces all logs of its source with lower numbers.
    """

    source: str
    """The number of the source in Spark's plan, or its name if Spark was told one."""
    number: int
    is_compacted: bool
    data: bytes
    """Empty for a log of files whose content is kept outside of the manifest."""

    @property
    def name(self) -> str:
        """Its path in Spark's checkpoint directory."""
        return f"sources/{self.source}/{self.number}{'.compact' if self.is_compacted else ''}"

    @classmethod
    def parse(cls, name: str, data: bytes) -> SourceLog | None:
        """The log of that name, or None if it is not the name of one.

        >>> SourceLog.parse("sources/0/19.compact", b"v1").number
        19
        >>> SourceLog.parse("sources/0/../../x", b"v1") is None
        True
        """
        found = _LOG_NAME.fullmatch(name)
        return None if found is None else cls(found[1], int(found[2]), found[3] is not None, data)

    @property
    def is_file_log(self) -> bool:
        """Whether it is the log of a file source: its first entry names a file."""
        if not self.data:
            return True
        first = _json_object(self._lines()[1]) if len(self._lines()) > 1 else None
        return first is not None and isinstance(first.get("path"), str)

    def file_paths(self) -> Iterator[str]:
        """The files in the log of a file source, each entry checked; none in any other log."""
        if not self.is_file_log:
            return
        for line in self._lines()[1:]:
            entry = _json_object(line)
            if entry is None or not _is_file_entry(entry, self.number):
                raise _damage(self.name, line[:200], "path, timestamp and number of a file")
            yield entry["path"]

    def _lines(self) -> list[str]:
        lines = _text_of(self.name, self.data).removeprefix("\0").split("\n")
        if lines[0] != "v1":
            raise _damage(self.name, f"{self.data[:40]!r}", "a log that begins with v1")
        return lines


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """How far one batch read each source, in Spark's notation."""

    version: str
    metadata: str
    sources: tuple[str, ...]

    @classmethod
    def parse(cls, name: str, data: bytes) -> OffsetLog:
        """The offsets in these bytes, or CorruptionError."""
        version, *lines = _text_of(name, data).split("\n")
        if version not in ("v1", "v2") or not lines or not all(lines):
            raise _damage(name, f"{data[:40]!r}", "a version, the batch metadata, and a line for each source")
        return cls(version, _checked_metadata(name, lines[0]), tuple(lines[1:]))

    def encode(self) -> bytes:
        """The bytes that Spark reads."""
        return "\n".join([self.version, self.metadata, *self.sources]).encode()

    def log_offsets(self, source: str) -> set[int]:
        """The numbers up to which the log of a file source may go.

        Usually one. Spark repeats the line of a source that its plan uses twice, and then numbers fewer
        sources than it writes lines.
        """
        if self.version == "v2":
            named = (line.partition(":") for line in self.sources)
            lines = [offset for name, _, offset in named if name == source]
        else:
            first = int(source) if source.isdigit() else len(self.sources)
            is_repeated = len(set(self.sources)) < len(self.sources)
            lines = list(self.sources[first:] if is_repeated else self.sources[first : first + 1])
        offsets = [entry.get("logOffset") for line in lines if (entry := _json_object(line)) is not None]
        return {offset for offset in offsets if type(offset) is int}


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """What Spark needs to continue after an epoch, and nothing else."""

    epoch: Epoch
    query_id: str
    offsets: OffsetLog
    before: OffsetLog | None
    """Of the batch before; None for the first batch."""
    logs: tuple[SourceLog, ...]

    @classmethod
    def parse(cls, files: Sequence[NamedBytes], epoch: Epoch, outside: Sequence[str] = ()) -> SparkFiles:
        """The files of an epoch. Raises CorruptionError for one that is missing, malformed or too many.

        `outside` are the names of logs of file sources whose content is not among the files.
        """
        named = _by_name([*files, *(NamedBytes(name, b"") for name in outside)])
        batch = epoch.batch_id
        query_id = _query_id(named.pop(METADATA, b""))
        offsets = OffsetLog.parse(f"offsets/{batch}", named.pop(f"offsets/{batch}", b""))
        earlier = named.pop(f"offsets/{batch - 1}", None)
        before = None if earlier is None else OffsetLog.parse(f"offsets/{batch - 1}", earlier)
        for number in (batch - 1, batch):
            _check_commit(f"commits/{number}", named.pop(f"commits/{number}", COMMITTED_BATCH))
        logs = [_require_log(name, data, batch, is_outside=name in outside) for name, data in named.items()]
        needed = tuple(needed_logs(logs))
        _check_logs(needed, offsets)
        return cls(epoch, query_id, offsets, before, needed)

    def encode(self) -> tuple[NamedBytes, ...]:
        """The files as they go into Spark's directory."""
        batch = self.epoch.batch_id
        files = {METADATA: json.dumps({"id": self.query_id}, separators=(",", ":")).encode()}
        if self.before is not None:
            files[f"offsets/{batch - 1}"] = self.before.encode()
            files[f"commits/{batch - 1}"] = COMMITTED_BATCH
        files[f"offsets/{batch}"] = self.offsets.encode()
        files[f"commits/{batch}"] = COMMITTED_BATCH
        files |= {log.name: log.data for log in self.logs if log.data}
        return tuple(NamedBytes(name, data) for name, data in files.items())

    def file_paths(self, known: Collection[str] = ()) -> Iterator[tuple[str, str]]:
        """Every file that a log of a file source names, with the log, except for logs of known names.

        Raises CorruptionError for an entry that is not one of a file.
        """
        for log in self.logs:
            if log.data and log.name not in known:
                for path in log.file_paths():
                    yield log.name, path

    def renumber(self, epoch: Epoch) -> SparkFiles:
        """The same batch as that of another epoch: there were epochs without a batch before it.

        Spark needs the offsets of the batch before, except for those of its first batch.
        """
        before = self.offsets if self.before is None and epoch.batch_id else self.before
        return replace(self, epoch=epoch, before=before)

    def at(self, epoch: Epoch) -> SparkFiles:
        """The same position as that of a later epoch, which has read no more.

        Spark writes the same files when it runs a batch without new data.
        """
        return replace(self, epoch=epoch, before=self.offsets)


def files_of_another_query(files: Sequence[NamedBytes], epoch: Epoch, name: str) -> tuple[NamedBytes, ...]:
    """The engine's files of an epoch, for a query of its own that continues from there.

    Spark refuses to run two queries with one id. The new one follows from the name.
    """
    if not files:
        return ()
    query_id = str(uuid5(_QUERY_IDS, name))
    return replace(SparkFiles.parse(files, epoch), query_id=query_id).encode()


def needed_logs(logs: Iterable[SourceLog]) -> Iterator[SourceLog]:
    """The logs without those that a compacted one replaces, in order."""
    ordered = sorted(logs, key=lambda log: (log.source, log.number))
    replaced = {log.source: log.number for log in ordered if log.is_compacted}
    for log in ordered:
        if log.number >= replaced.get(log.source, 0):
            yield log


def engine_file_damage(files: Sequence[NamedBytes], epoch: Epoch) -> CorruptionError | None:
    """What is wrong with the engine's files in a manifest, or None. A job without an engine has none."""
    if not files or [file.name for file in files] == [SINK_SCHEMA]:
        return None
    try:
        for _ in SparkFiles.parse(files, epoch).file_paths():
            pass
    except CorruptionError as damage:
        return damage
    return None


def _by_name(files: Sequence[NamedBytes]) -> dict[str, bytes]:
    named = {file.name: file.data for file in files}
    if len(named) != len(files):
        twice = sorted(name for name in named if [file.name for file in files].count(name) > 1)
        raise _damage(twice[0], "several files of this name", "one")
    return named


def _require_log(name: str, data: bytes, batch: int, *, is_outside: bool) -> SourceLog:
    log = SourceLog.parse(name, data)
    if log is None or not (data or is_outside):
        raise _damage(name, "a file that Spark does not need to continue", f"none besides batch {batch}")
    if log.number > batch:
        raise _damage(name, f"a log of batch {log.number}", f"at most batch {batch}")
    return log


def _check_logs(logs: Sequence[SourceLog], offsets: OffsetLog) -> None:
    """Check that the logs of file sources end where the offsets do.

    A file source would read what its log names after that, and read again what is missing before it.
    """
    for source, group in groupby(logs, key=lambda log: log.source):
        found = list(group)
        kinds = {log.is_file_log for log in found}
        if kinds == {False}:
            continue
        numbers = [log.number for log in found]
        first = numbers[0] if found[0].is_compacted else 0
        ends = offsets.log_offsets(source)
        is_complete = numbers == list(range(first, first + len(numbers)))
        if kinds != {True} or not is_complete or numbers[-1] not in ends:
            last = " or ".join(map(str, sorted(ends))) or "none"
            expected = f"files in logs {first} to {last}, as in the offsets"
            raise _damage(found[-1].name, f"logs {numbers} of source {source}"[:200], expected)


def _query_id(data: bytes) -> str:
    found = _json_object(_text_of(METADATA, data))
    try:
        return str(UUID((found or {})["id"]))
    except (KeyError, ValueError, AttributeError, TypeError) as cause:
        raise _damage(METADATA, f"{data[:60]!r}", "the id of Spark's query") from cause


def _checked_metadata(name: str, line: str) -> str:
    """The metadata of a batch with only what Spark may be told: numbers, and settings of its SQL."""
    found = _json_object(line)
    if found is None:
        raise _damage(name, line[:40], "the metadata of a batch")
    times = {key: found.get(key, 0) for key in ("batchWatermarkMs", "batchTimestampMs")}
    conf, sources = found.get("conf", {}), found.get("sourceMetadataInfo", {})
    if not isinstance(conf, dict) or not isinstance(sources, dict) or {int} != set(map(type, times.values())):
        raise _damage(name, line[:120], "times and settings")
    kept = {**times, "conf": {key: value for key, value in conf.items() if _is_setting(name, key, value)}}
    if "sourceMetadataInfo" in found:
        kept["sourceMetadataInfo"] = sources
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)


def _is_setting(name: str, key: str, value: object) -> bool:
    if (
        not _CONF_NAME.fullmatch(key)
        or not isinstance(value, str)
        or len(value) > _CONF_VALUE_CHARS_MAX
        or not _TEXT.fullmatch(value)
    ):
        raise _damage(name, f"{key[:60]}={str(value)[:60]}", "settings of Spark SQL")
    # Spark would load this class. A query without state of Spark's own needs none.
    return key != _STATE_STORE_CLASS or value.startswith("org.apache.spark.")


def _check_commit(name: str, data: bytes) -> None:
    if not data.startswith(b"v1\n") or _json_object(_text_of(name, data)[3:]) is None:
        raise _damage(name, f"{data[:40]!r}", "the commit of a batch")


def _is_file_entry(entry: Mapping[str, Any], number: int) -> bool:
    return (
        entry.keys() == {"path", "timestamp", "batchId"}
        and isinstance(entry["path"], str)
        and type(entry["timestamp"]) is int
        and type(entry["batchId"]) is int
        and 0 <= entry["batchId"] <= number
    )


def _text_of(name: str, data: bytes) -> str:
    try:
        text = data.decode()
    except ValueError as cause:
        raise _damage(name, f"{data[:40]!r}", "lines of text") from cause
    # Before its first log, a Kafka source writes a zero byte.
    if not _TEXT.fullmatch(text.removeprefix("\0")):
        raise _damage(name, f"{data[:40]!r}", "lines of text")
    return text


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _damage(name: str, found: str, expected: str) -> CorruptionError:
    return CorruptionError(
        "the manifest holds files of Spark that the epoch does not have",
        object_name=f"{name} in the manifest",
        found=found,
        expected=expected,
        action=_LOST_AND_FOUND,
    )
