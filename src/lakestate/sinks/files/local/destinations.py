"""Files that grow under hidden names in a local directory, for any format."""

from __future__ import annotations

from lakestate.sinks.files.destination import (
    CurrentFileRecovery,
    FileEncoding,
    FileWriter,
    UploadResumePoint,
    moved_output_error,
)
from lakestate.sinks.files.local.attempts import Attempt
from lakestate.sinks.files.local.growing_file import GrowingFile, SnapshotPlace
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.names import hidden_name
from lakestate.sinks.files.snapshots import SnapshotNaming
from lakestate.sinks.formats.writer_state import WriterState


class LocalDestinations:
    """The hidden files of one attempt."""

    def __init__(
        self, output: LocalOutput, attempt: Attempt, snapshots: SnapshotNaming | None = None
    ) -> None:
        self._output = output
        self._attempt = attempt
        self._snapshots = snapshots

    def begin(self, path: str, encoding: FileEncoding) -> FileWriter:
        """A new file."""
        self._output.require_place(path)
        file = self._output.create(self._hidden_name(path))
        growing = GrowingFile(self._output, path, file, snapshot=self._snapshot_place(path))
        return _open_writer(growing, encoding)

    def resume(self, path: str, recovery: CurrentFileRecovery, encoding: FileEncoding) -> FileWriter:
        """A file that continues."""
        resume_point = recovery.resume_point
        if isinstance(resume_point, UploadResumePoint):
            raise moved_output_error(path, resume_point, str(self._output.root))
        self._output.require_place(path)
        copy = self._hidden_name(path)
        file = self._output.reopen(resume_point.temporary, resume_point.position, resume_point.crc32, copy)
        in_place = file.path.name == resume_point.temporary
        growing = GrowingFile(
            self._output, path, file, copy if in_place else None, self._snapshot_place(path)
        )
        return _open_writer(growing, encoding, recovery.state)

    def close(self) -> None:
        """There is no background work."""

    def _snapshot_place(self, path: str) -> SnapshotPlace | None:
        if self._snapshots is None:
            return None
        target = self._snapshots.path(path)
        self._output.snapshots.require_place(target)
        return SnapshotPlace(target, self._hidden_name(target))

    def _hidden_name(self, path: str) -> str:
        return self._attempt.hidden_name(hidden_name(path))


def _open_writer(file: GrowingFile, encoding: FileEncoding, state: WriterState | None = None) -> FileWriter:
    try:
        return encoding.format.open_local_writer(file, encoding.schema, state)
    except BaseException:
        file.take_back()
        raise
