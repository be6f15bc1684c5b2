"""Events of the files of a sink: those of a subtask, and those of files that became visible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakestate.observability.file_events import FileEvent, FileEventKind
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.names import epoch_begun
from lakestate.sinks.files.pre_commit import FilePreCommit, PreCommit
from lakestate.sinks.rolling import RollReason
from lakestate.sinks.sink import SinkContext


@dataclass(frozen=True, slots=True)
class FileLog:
    """Tells of the files of one subtask in one epoch."""

    context: SinkContext
    fingerprint: str

    def opened(self, path: str) -> None:
        """A file was begun."""
        self._tell(FileEventKind.OPENED, path, 0, 0)

    def rolled(self, path: str, rows: int, size_bytes: int, reason: RollReason) -> None:
        """A file takes no more rows."""
        self._tell(FileEventKind.ROLLED, path, rows, size_bytes, reason.value)

    def finished(self, files: Iterable[FilePreCommit]) -> None:
        """Files are complete and durable."""
        for file in files:
            self._tell(FileEventKind.FINISHED, file.path, file.statistics.row_count, file.size_bytes)

    def _tell(
        self, kind: FileEventKind, path: str, rows: int, size_bytes: int, reason: str | None = None
    ) -> None:
        task = self.context.task
        self.context.on_file_event(
            FileEvent(
                kind=kind,
                job_id=task.job_id,
                sink_id=self.context.sink_id or task.operator_id,
                subtask_index=task.subtask_index,
                path=path,
                partition=path.rpartition("/")[0],
                epoch=int(self.context.epoch),
                opened_epoch=_opened_epoch(path, self.fingerprint),
                rows=rows,
                size_bytes=size_bytes,
                reason=reason,
            )
        )


def committed_files(
    job_id: str, sink_id: str, epoch: Epoch, pre_commits: Sequence[PreCommit]
) -> list[FileEvent]:
    """The events of files that became visible with an epoch: all that is known is in its manifest."""
    return [
        FileEvent(
            kind=FileEventKind.SHOWN if file.preview_of else FileEventKind.COMMITTED,
            job_id=job_id,
            sink_id=sink_id,
            subtask_index=pre_commit.subtask_index,
            path=file.path,
            partition=file.path.rpartition("/")[0],
            epoch=int(epoch),
            opened_epoch=_opened_epoch(file.path, pre_commit.fingerprint),
            rows=file.statistics.row_count,
            size_bytes=file.size_bytes,
        )
        for pre_commit in pre_commits
        for file in pre_commit.finished
    ]


def _opened_epoch(path: str, fingerprint: str) -> int | None:
    begun = epoch_begun(path, fingerprint)
    return None if begun is None else int(begun)
