"""The open files of an epoch when its job goes back to it: which continue, and which are finished by now.

A file that a later epoch has finished is visible, and whole: it is taken out of the state. A file that is
still open continues where the epoch left it: what later epochs added to it is not read, and its rows are
written again. What was never finished since belongs to nobody, and the clean-up of the sink removes it.
Copies of open files go at once: they hold rows that are given up. The next epoch makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from lakestate.errors import FILE_OR_GO_BACK, CorruptionError, NotFoundError
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.metadata import (
    CommitPart,
    Manifest,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableFiles,
)
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.repair.pre_commits import open_tokens, pre_commits_of, snapshot_paths
from lakestate.sinks.files.destination import (
    LocalResumePoint,
    ResumePoint,
    UploadResumePoint,
    open_reference,
)
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.sinks.files.open_files import (
    OPEN_FILES,
    OpenFile,
    OpenFiles,
    OpenFileState,
    open_files_table,
)
from lakestate.sinks.files.pre_commit import OpenReference, PreCommit
from lakestate.sinks.files.writer import PRE_COMMITS
from lakestate.sinks.sink import Sink
from lakestate.tables.manager import TableManager


@dataclass(frozen=True, slots=True)
class OpenSince:
    """The files of a sink that were open in an epoch and still are, by path."""

    tokens: Mapping[str, str]
    """With the upload or hidden file that holds their bytes now."""
    lost: frozenset[str] = frozenset()
    """Files that were finished since, and can never be committed."""
    copies: tuple[str, ...] = ()
    """The paths of the copies of open files, with `snapshot_open_files`."""

    @classmethod
    def of(
        cls,
        sink: Sink,
        sink_id: str,
        newest: Manifest,
        not_committed: Iterable[Manifest],
        *,
        is_damaged_later: bool,
    ) -> OpenSince:
        """What the newest intact epoch keeps open, without what is visible if later epochs are damaged.

        `not_committed` are epochs whose commit failed for ever, or perhaps only lacks its marker.
        """
        found = open_tokens(sink_id, newest)
        if is_damaged_later:
            found = {path: token for path, token in found.items() if not _is_visible(sink, path)}
        parts = (part for manifest in not_committed for part in pre_commits_of(sink_id, manifest))
        finished = {file.path for part in parts for file in part.finished}
        lost = frozenset(path for path in finished if not _is_visible(sink, path))
        return cls(found, lost, snapshot_paths(sink_id, newest))

    def require_visible(self, file: OpenFile) -> str:
        """The path of a file that does not continue, if its rows are visible; otherwise CorruptionError."""
        if file.path in self.lost:
            raise CorruptionError(
                "a file that was open in the epoch was finished since, and cannot be committed: its rows of "
                "earlier epochs would be lost",
                object_name=file.path,
                action=FILE_OR_GO_BACK,
            )
        return file.path

    def continues(self, file: OpenFile) -> bool:
        """Whether no later epoch has finished the file."""
        return file.path in self.tokens

    def resumed(self, file: OpenFile, state: OpenFileState) -> tuple[OpenFile, OpenFileState]:
        """The record with which a file continues: its bytes are in the upload or hidden file of today.

        It has no copy: the one of the epoch is gone, and the one of today holds later rows. If its small
        file is visible by now, it holds later rows too: the file cannot take the place of those that show
        its rows, and its commit finds that out by counting rows.
        """
        resumed = self._with_bytes_of_today(file)
        if file.preview is None:
            return resumed, state
        if self.continues(file.preview):
            preview = self._with_bytes_of_today(file.preview)
            return msgspec.structs.replace(resumed, preview=preview), state
        shown = (*state.shown, self.require_visible(file.preview))
        rows = file.shown_rows + file.preview.row_count
        resumed = msgspec.structs.replace(resumed, preview=None, shown=len(shown), shown_rows=rows)
        return resumed, OpenFileState(state.writer, None, shown)

    def _with_bytes_of_today(self, file: OpenFile) -> OpenFile:
        """The record with the upload or hidden file of today.

        Of a local file that was copied since, the copy has the same bytes up to the position, and the file
        that it was copied from may be gone. An upload that was begun since is continued in a lane of its
        own: a late clean-up of the epochs that are given up would abort another one.
        """
        token = self.tokens[file.path]
        file = msgspec.structs.replace(file, snapshot=None)
        match file.resume_point:
            case LocalResumePoint(temporary=known) if token and token != known:
                point: ResumePoint = msgspec.structs.replace(file.resume_point, temporary=token)
            case UploadResumePoint(token=known) if token and token != known:
                point = msgspec.structs.replace(file.resume_point, token=token)
            case _:
                return file
        return msgspec.structs.replace(file, resume_point=point)


@dataclass(frozen=True)
class OpenFilesAgain:
    """Writes the open files of one sink in an earlier epoch as those of a new epoch."""

    sink: Sink
    sink_id: str
    backend: StateBackend
    claim: GenerationRecord
    source: Manifest
    """The earlier epoch."""
    epoch: Epoch
    still_open: OpenSince

    def write(self) -> tuple[dict[int, tuple[SubtaskEntry, CommitPart]], list[str]]:
        """Write the subtasks that had files open or finished. Returns them, and the files finished since.

        One is written at least: by its pre-commit the clean-up knows which files later epochs gave up.
        """
        entries = {each.subtask_index: each for each in self.source.require_operator(self.sink_id).subtasks}
        parts = pre_commits_of(self.sink_id, self.source) or [PreCommit(self._fingerprint)]
        written: dict[int, tuple[SubtaskEntry, CommitPart]] = {}
        finished: list[str] = []
        for part in parts:
            index = part.subtask_index
            # Any of them can say it: which subtask has a file is not the same in all epochs.
            dropped = () if written else self.still_open.copies
            part = PreCommit(part.fingerprint, subtask_index=index, dropped=dropped)
            written[index] = self._write_subtask(entries[index], part, finished)
        return written, finished

    @property
    def _fingerprint(self) -> str:
        return sink_fingerprint(self.source.job_id, self.sink_id, self.claim.state_id)

    def _write_subtask(
        self, entry: SubtaskEntry, part: PreCommit, finished: list[str]
    ) -> tuple[SubtaskEntry, CommitPart]:
        objects = self.backend.objects(self.source.job_id)
        (stored,) = objects.read_subtasks([entry])
        references, changed = self._write_table(entry, finished)
        if changed is not None:
            (stored_open,) = objects.read_subtasks([changed])
            opened = stored_open.table(OPEN_FILES)
            stored = replace(stored, tables=_with_table(stored, opened))
        again = msgspec.structs.replace(part, open=references).encode()
        metadata = renewed_metadata(stored, self.backend, self.claim, self.epoch, {PRE_COMMITS: again})
        ref = self.backend.write_operator_checkpoint_metadata(metadata)
        files = [file for table in metadata.tables for file in table.files]
        summary = StateSummary(
            len(files), sum(file.row_count for file in files), sum(file.size_bytes for file in files)
        )
        commit = CommitPart(part.subtask_index, PRE_COMMITS, again)
        return replace(entry, metadata=ref, summary=summary), commit

    def _write_table(
        self, entry: SubtaskEntry, finished: list[str]
    ) -> tuple[tuple[OpenReference, ...], SubtaskEntry | None]:
        """What stays open, and the subtask with its new table, if the table changes."""
        source, index = self.source, entry.subtask_index
        parallelism = source.require_operator(self.sink_id).parallelism
        task = TaskInfo(
            source.job_id, self.sink_id, index, parallelism, self.claim.generation, self.claim.state_id
        )
        # Only this table: with a replicated one, each subtask would read the metadata of all.
        tables = TableManager.load(task, [open_files_table()], self.backend, source, drop=[PRE_COMMITS])
        state = OpenFiles(tables.keyed(OPEN_FILES))
        references: list[OpenReference] = []
        is_changed = False
        for record in state.records():
            if not self.still_open.continues(record):
                finished.append(self.still_open.require_visible(record))
                state.forget(record.file_id)
                is_changed = True
                continue
            resumed, continued = self.still_open.resumed(record, state.state(record))
            if resumed != record:
                state.keep(resumed, continued)
                is_changed = True
            references += [open_reference(part.path, part.resume_point, None) for part in resumed.parts]
        if not is_changed:
            return tuple(references), None
        state.save()
        done = tables.checkpoint(self.epoch, source.min_epoch, None, then_stop=False)
        return tuple(references), done.entry


def renewed_metadata(
    stored: SubtaskMetadata,
    backend: StateBackend,
    claim: GenerationRecord,
    epoch: Epoch,
    commit_data: Mapping[str, bytes | None],
) -> SubtaskMetadata:
    """The metadata of a subtask as that of a new epoch, with other commit data: its own was committed."""
    now_ms = backend.ambient.now_ms()
    return replace(
        stored,
        epoch=epoch,
        generation=claim.generation,
        attempt=backend.ambient.new_id(),
        started_ms=now_ms,
        finished_ms=now_ms,
        bytes_written=0,
        tables=tuple(replace(table, commit_data=commit_data.get(table.table)) for table in stored.tables),
    )


def drop_commit_data(
    entry: SubtaskEntry, backend: StateBackend, claim: GenerationRecord, epoch: Epoch
) -> SubtaskEntry:
    """A subtask in a new epoch, without what it left to commit: that is committed with its own epoch."""
    (stored,) = backend.objects(claim.job_id).read_subtasks([entry])
    metadata = renewed_metadata(stored, backend, claim, epoch, {})
    ref = backend.write_operator_checkpoint_metadata(metadata)
    return replace(entry, metadata=ref, summary=replace(entry.summary, bytes_written=0))


def _with_table(stored: SubtaskMetadata, changed: TableFiles | None) -> tuple[TableFiles, ...]:
    return tuple(
        changed if changed is not None and table.table == changed.table else table for table in stored.tables
    )


def _is_visible(sink: Sink, path: str) -> bool:
    files = sink.file_sink()
    if files is None:
        return False
    try:
        files.store.head(path)
    except NotFoundError:
        return False
    return True
