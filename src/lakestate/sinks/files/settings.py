"""The settings shared by all sinks that write files, for every format and table format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from lakestate.config import RetryPolicy, size_bytes
from lakestate.errors import InvalidInputError
from lakestate.observability.file_events import FileEvent
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.file_log import committed_files
from lakestate.sinks.files.names import FileNaming, sink_fingerprint
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.rolling import Roll
from lakestate.sinks.text_options import option, parse_flag, parse_number, parse_size

PART_BYTES_DEFAULT = "8 MiB"


@dataclass(frozen=True, kw_only=True)
class FileSinkSettings:
    """One value for all of them. Sinks inherit it, so that users give each setting by its own name."""

    roll: Roll = field(default_factory=Roll)
    options: Mapping[str, str] | None = field(default=None, repr=False)
    """Settings of the object store."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """How long the object store is tried when it does not answer."""
    prefix: str = field(default="part", metadata=option("prefix"))
    suffix: str = field(default="", metadata=option("suffix"))
    open_files_max: int = field(default=128, metadata=option("openFilesMax", parse_number))
    """Open files of one subtask. Beyond that the oldest is finished."""
    part_bytes: int | str = field(default=PART_BYTES_DEFAULT, metadata=option("partSize", parse_size))
    upload_threads: int = field(default=4, metadata=option("uploadThreads", parse_number))
    """Parts that a subtask puts at the same time; with 0 none is put in the background."""
    snapshot_open_files: bool = field(default=False, metadata=option("snapshotOpenFiles", parse_flag))
    """Leave with each checkpoint a complete copy of every open file that it changed."""

    def __post_init__(self) -> None:
        FileNaming(self.prefix, self.suffix)
        if self.open_files_max < 1 or self.upload_threads < 0 or size_bytes(self.part_bytes) < 1:
            raise InvalidInputError(
                "not settings of a file sink",
                found=f"open_files_max={self.open_files_max}, upload_threads={self.upload_threads}, "
                f"part_bytes={self.part_bytes}",
                expected="at least one open file and one byte per part, and no fewer than 0 threads",
            )
        if self.roll.visible is not None and self.snapshot_open_files:
            raise InvalidInputError(
                "rows of open files can be shown in one way only",
                found=f"Roll(visible={str(self.roll.visible)!r}) and snapshot_open_files",
                action="leave one of them out",
            )

    @property
    def follows_event_time(self) -> bool:
        """Whether files are finished when the watermark passes."""
        return self.roll.past_watermark is not None

    @property
    def follows_clock(self) -> bool:
        """Whether files are finished, or rows of them shown, when time passes."""
        return self.roll.follows_clock

    def due_ms(self, pre_commits: Sequence[bytes]) -> int | None:
        """When the first open file is to be finished, or rows of it shown."""
        times_ms = (PreCommit.decode(data).due_ms for data in pre_commits)
        return min((each for each in times_ms if each is not None), default=None)

    def committed_files(
        self, job_id: str, sink_id: str, epoch: Epoch, pre_commits: Sequence[bytes]
    ) -> Sequence[FileEvent]:
        """An event for each file that the epoch finished."""
        return committed_files(job_id, sink_id, epoch, [PreCommit.decode(data) for data in pre_commits])

    def has_open_files(self, pre_commits: Sequence[bytes]) -> bool:
        """Whether a subtask kept a file open."""
        return any(PreCommit.decode(data).open for data in pre_commits)

    def empty_pre_commit(self, job_id: str, sink_id: str, state_id: str) -> bytes:
        """The pre-commit of an epoch in which no file is open and none was finished."""
        return PreCommit(sink_fingerprint(job_id, sink_id, state_id)).encode()

    def file_sink_settings(self) -> dict[str, Any]:
        """These settings by name, to make another sink with the same ones."""
        return {each.name: getattr(self, each.name) for each in fields(FileSinkSettings)}
