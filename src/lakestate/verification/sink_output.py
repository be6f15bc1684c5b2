"""The unfinished output of a sink: everything that the newest epoch refers to, and what else is left.

Only the newest epoch counts: files that older epochs had open are finished by now. Committed output
belongs to its readers and is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from lakestate.errors import CorruptionError, InvalidInputError, LakestateError, NotFoundError
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.sinks.files.destination import LocalResumePoint, ResumePoint, UploadResumePoint
from lakestate.sinks.files.local.attempts import MadeBy
from lakestate.sinks.files.local.output import OPEN_FOLDER, LocalOutput
from lakestate.sinks.files.names import epoch_begun, sink_fingerprint
from lakestate.sinks.files.open_files import OPEN_FILES, OpenFile, OpenFiles
from lakestate.sinks.files.owner_marks import owner_marks
from lakestate.sinks.files.pre_commit import (
    CompletedUpload,
    FilePreCommit,
    LocalFile,
    Part,
    PreCommit,
    SmallObject,
)
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.snapshots import STORE_FOLDER, Snapshot
from lakestate.sinks.output_owner import OutputOwner, other_owners
from lakestate.storage.store import ObjectStore, UploadId
from lakestate.tables.manager import TableManager
from lakestate.verification.report import DanglingOutput, DanglingStatus, Finding, Problem

OUTPUT_ERRORS = (CorruptionError, NotFoundError, InvalidInputError)
_PART = "part of unfinished output"
_UPLOAD = "unfinished upload"
_HIDDEN = "hidden file"
_OWNER = "owner of the output"
_SNAPSHOT = "snapshot of an open file"


@dataclass(frozen=True)
class SinkOutput:
    """A sink's output as the newest epoch left it."""

    task: TaskInfo
    sink: FileSink
    epoch: Epoch
    open_files: tuple[OpenFile, ...]
    pre_commits: tuple[PreCommit, ...]
    is_committed: bool
    checkpoint: str
    """Where the state is."""

    @classmethod
    def load(
        cls,
        task: TaskInfo,
        sink: FileSink,
        backend: StateBackend,
        epoch: Epoch,
        pre_commits: Sequence[bytes],
        *,
        is_committed: bool,
    ) -> SinkOutput:
        """Read the records of open files from the sink's state. Raises what restoring would raise."""
        tables = TableManager.load(task, sink.tables(), backend, epoch)
        state = OpenFiles(tables.keyed(OPEN_FILES))
        records = state.records()
        for record in records:
            state.state(record)
        decoded = tuple(PreCommit.decode(data) for data in pre_commits)
        parts = tuple(part for record in records for part in record.parts)
        return cls(task, sink, epoch, parts, decoded, is_committed, backend.location)

    @property
    def sink_id(self) -> str:
        """The sink."""
        return self.task.operator_id

    def findings(self) -> Iterator[Finding]:
        """Output that is missing or changed."""
        yield from self._owner_findings()
        for record in self.open_files:
            yield from self._resume_point_findings(record.path, record.resume_point)
            # A copy becomes visible with the commit of its epoch.
            if record.snapshot is not None and self.is_committed:
                yield from self._snapshot_findings(record.path, record.snapshot)
        finished = [file for pre_commit in self.pre_commits for file in pre_commit.finished]
        for file in () if self.is_committed else finished:
            yield from self._finished_findings(file)

    def _owner_findings(self) -> Iterator[Finding]:
        """The marks of other owners, with which this job cannot start."""
        marks = owner_marks(self.sink.output)
        owner = OutputOwner(self.task.job_id, self.sink_id, self.task.state_id, self.checkpoint)
        for mark in other_owners(owner, marks.of_fingerprint(owner.fingerprint)):
            yield Finding(
                marks.output,
                _OWNER,
                Problem.CONTRADICTION,
                str(OutputOwner.of_mark(mark)),
                str(owner),
                consequence="the job starts only with take_over_output, if the other one never runs again",
            )

    def dangling_output(self) -> Iterator[DanglingOutput]:
        """Unfinished output of this sink that the newest epoch does not refer to."""
        fingerprint = sink_fingerprint(self.task.job_id, self.sink_id, self.task.state_id)
        used = {(record.path, _token(record.resume_point)) for record in self.open_files}
        for pre_commit in self.pre_commits:
            used |= {(file.path, _token_of(file)) for file in (*pre_commit.finished, *pre_commit.snapshots)}
        for path, token, started_ms in self._unfinished_output():
            begun = epoch_begun(path, fingerprint)
            # A file without a full part has no upload yet; the next epoch may have started one.
            if begun is None or not used.isdisjoint({(path, token), (path, "")}):
                continue
            made = MadeBy.of(token, fingerprint)
            is_dead = (begun if made is None else made.epoch) <= self.epoch
            status = DanglingStatus.DEAD if is_dead else DanglingStatus.IN_FLIGHT
            yield DanglingOutput(self._display_name(path), token, status, self.sink_id, started_ms)
        yield from self._dangling_snapshots(fingerprint)

    def _dangling_snapshots(self, fingerprint: str) -> Iterator[DanglingOutput]:
        named = {record.snapshot.path for record in self.open_files if record.snapshot is not None}
        named |= {copy.path for pre_commit in self.pre_commits for copy in pre_commit.snapshots}
        for path in self._snapshot_paths():
            begun = epoch_begun(path, fingerprint)
            if begun is not None and path not in named:
                status = DanglingStatus.DEAD if begun <= self.epoch else DanglingStatus.IN_FLIGHT
                yield DanglingOutput(self._display_name(path), path, status, self.sink_id)

    def _snapshot_paths(self) -> list[str]:
        output = self.sink.output
        if isinstance(output, LocalOutput):
            return output.snapshots.paths()
        return [info.path for info in output.list(f"{STORE_FOLDER}/")]

    def _snapshot_findings(self, path: str, copy: Snapshot) -> Iterator[Finding]:
        """A copy that cannot be read. The open file itself is not damaged by that."""
        size, checksum = self._copy_as_found(copy)
        consequence = f"rows of the open file {path} can be read only by Lakestate until it is written again"
        if size != copy.size_bytes:
            problem = Problem.MISSING if size is None else Problem.SIZE
            detail, expected = "" if size is None else f"{size} bytes", f"{copy.size_bytes} bytes"
        elif checksum != copy.crc32:
            problem = Problem.CHECKSUM
            detail, expected = f"CRC-32 {checksum or 0:08x}", f"CRC-32 {copy.crc32 or 0:08x}"
        else:
            return
        yield Finding(
            self._display_name(copy.path), _SNAPSHOT, problem, detail, expected, consequence=consequence
        )

    def _copy_as_found(self, copy: Snapshot) -> tuple[int | None, int | None]:
        """The size of a copy, and its checksum if it is a local file; None for what is missing."""
        output = self.sink.output
        if isinstance(output, LocalOutput):
            snapshots = output.snapshots
            return snapshots.size_bytes(copy.path), snapshots.checksum(copy.path, copy.size_bytes)
        try:
            return output.head(copy.path).size_bytes, None
        except NotFoundError:
            return None, None

    def _unfinished_output(self) -> Iterator[tuple[str, str, int | None]]:
        output = self.sink.output
        if isinstance(output, LocalOutput):
            known = {_token(record.resume_point): record.path for record in self.open_files}
            for pre_commit in self.pre_commits:
                files = (*pre_commit.finished, *pre_commit.snapshots)
                known |= {_token_of(file): file.path for file in files}
            yield from ((known.get(name, name), name, None) for name in output.hidden_files())
            return
        for found in output.uploads.list_dangling():
            yield found.upload.path, found.upload.token, found.started_ms

    def _resume_point_findings(self, path: str, resume_point: ResumePoint) -> Iterator[Finding]:
        match resume_point:
            case LocalResumePoint(temporary=temporary, position=position, crc32=crc32):
                # Bytes after the position were written by a failed attempt and do not count.
                yield from self._hidden_findings(temporary, position, crc32)
            case UploadResumePoint(token=str(token), parts=parts):
                yield from self._upload_findings(UploadId(path, token), parts)
            case UploadResumePoint():
                return
            case _:
                assert_never(resume_point)

    def _finished_findings(self, file: FilePreCommit) -> Iterator[Finding]:
        match file.content:
            case SmallObject():
                return
            case CompletedUpload(parts=parts):
                if not self._is_in_place(file):
                    yield from self._upload_findings(file.content.upload(file.path), parts)
            case LocalFile(temporary=temporary, crc32=crc32):
                if not self._is_in_place(file):
                    yield from self._hidden_findings(temporary, file.size_bytes, crc32, exactly=True)
            case _:
                assert_never(file.content)

    def _is_in_place(self, file: FilePreCommit) -> bool:
        """True if an interrupted commit has already made the file visible."""
        output = self.sink.output
        if isinstance(output, LocalOutput):
            target = output.root / file.path
            return target.is_file() and target.stat().st_size == file.size_bytes
        try:
            return output.head(file.path).size_bytes == file.size_bytes
        except NotFoundError:
            return False

    def _upload_findings(self, upload: UploadId, parts: Sequence[Part]) -> Iterator[Finding]:
        output = self.sink.output
        if isinstance(output, LocalOutput):
            raise self._wrong_sink_error("an upload to an object store")
        try:
            there = {part.number: Part.of(part) for part in output.uploads.list_parts(upload)}
        except OUTPUT_ERRORS as error:
            yield self._error_finding(error, upload.path)
            return
        for part in parts:
            found = there.get(part.number)
            if found != part:
                name = f"{self._display_name(upload.path)} (part {part.number} of upload {upload.token})"
                detail = "nothing" if found is None else _part_text(found)
                problem = Problem.MISSING if found is None else Problem.CHECKSUM
                yield Finding(name, _PART, problem, detail, _part_text(part), consequence=self._consequence)

    def _hidden_findings(
        self, temporary: str, size_bytes: int, crc32: int | None, *, exactly: bool = False
    ) -> Iterator[Finding]:
        output = self.sink.output
        if not isinstance(output, LocalOutput):
            raise self._wrong_sink_error("a hidden file in a directory")
        name = f"{output.root}/{OPEN_FOLDER}/{temporary}"
        size = output.size_bytes(temporary)
        found = output.checksum(temporary, size_bytes)
        if size is None or found is None or (exactly and size != size_bytes):
            problem = Problem.MISSING if size is None else Problem.SIZE
            detail = "" if size is None else f"{size} bytes"
            expected = f"{size_bytes} bytes"
            yield Finding(name, _HIDDEN, problem, detail, expected, consequence=self._consequence)
        elif crc32 is not None and found != crc32:
            detail, expected = f"CRC-32 {found:08x}", f"CRC-32 {crc32:08x}"
            yield Finding(name, _HIDDEN, Problem.CHECKSUM, detail, expected, consequence=self._consequence)

    @property
    def _consequence(self) -> str:
        return f"output that was started before epoch {self.epoch} cannot be finished"

    def _wrong_sink_error(self, found: str) -> InvalidInputError:
        return InvalidInputError(
            "the state is of a sink with another kind of destination",
            object_name=f"sink {self.sink_id}",
            found=found,
            expected=f"output in {self.sink.url}",
            action="pass the sink as the job declares it",
        )

    def _error_finding(self, error: LakestateError, path: str) -> Finding:
        problem = Problem.MISSING if isinstance(error, NotFoundError) else Problem.UNREADABLE
        name = error.object_name or self._display_name(path)
        return Finding(name, _UPLOAD, problem, error.summary, consequence=self._consequence)

    def _display_name(self, path: str) -> str:
        output: ObjectStore | LocalOutput = self.sink.output
        return f"{output.root if isinstance(output, LocalOutput) else output.url}/{path}"


def _part_text(part: Part) -> str:
    return f"{part.size_bytes} bytes with receipt {part.token}"


def _token(resume_point: ResumePoint) -> str:
    return resume_point.temporary if isinstance(resume_point, LocalResumePoint) else resume_point.token or ""


def _token_of(file: FilePreCommit) -> str:
    match file.content:
        case CompletedUpload(token=token) | LocalFile(temporary=token):
            return token
        case SmallObject():
            return ""
        case _:
            assert_never(file.content)
