"""What a file format is: rows in, bytes out, for files that stay open across epochs.

A format knows nothing of stores, partitions or epochs: `FileSink` decides which rows go into a file,
when it ends and how it becomes visible. Formats are found by name in the registry.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.sinks.formats.writer_state import WriterState

if TYPE_CHECKING:
    from lakestate.sinks.files.local.growing_file import GrowingFile
    from lakestate.sinks.files.local.writer import LocalWriter


class BatchBufferingWriter(Protocol):
    """One file of some format that stays open across epochs. It knows nothing of stores.

    After `finish`, bytes can still be taken, and everything else is refused: see `finished_file_error`.
    """

    @property
    def buffered_bytes(self) -> int:
        """Finished bytes that have not been taken."""
        ...

    @property
    def file_bytes(self) -> int:
        """The approximate size of the file if it ended now."""
        ...

    def add_batch_data(self, batch: pa.RecordBatch) -> None:
        """Take rows. They have the schema that the writer was opened with."""
        ...

    def split_to(self, size_bytes: int) -> bytes:
        """Take finished bytes from the front."""
        ...

    def settle(self) -> None:
        """Turn rows into finished bytes unless they are few enough for a checkpoint to keep."""
        ...

    def checkpoint(self) -> WriterState:
        """Everything that another process needs to continue the file."""
        ...

    def trailing_bytes_for_checkpoint(self) -> tuple[bytes, FileStatistics]:
        """The bytes that would follow those taken so far if the file ended now. The file stays open.

        Only sinks with `snapshot_open_files` ask for them.
        """
        ...

    def finish(self) -> FileStatistics:
        """End the file. The rest of its bytes waits to be taken."""
        ...


def finished_file_error(call: str) -> InvalidInputError:
    """The error for a call of a writer after `finish`: its file has an end, and cannot take more."""
    return InvalidInputError(
        f"{call} of a file that is finished", action="open a writer for another file before `finish`"
    )


class FileFormat(ABC):
    """How rows become the bytes of a file. Subclasses are frozen dataclasses of their settings.

    A format is shipped to every subtask, so it must be picklable. Give it a `name` and pass the class to
    `register_file_format` to have it found by name.
    """

    name: ClassVar[str]
    """Lower-case letters, digits and underscores: what `format="…"` and the option `format` say."""

    @property
    @abstractmethod
    def extension(self) -> str:
        """What file names end with, without the dot in front."""

    @property
    def kind(self) -> str:
        """What must stay the same for an open file to be continued or finished: by default all settings.

        Letters, digits, dots and underscores. Leave out what can change in the middle of a file.
        """
        names: list[str] = [each.name for each in fields(self)] if is_dataclass(self) else []
        settings = repr([(name, getattr(self, name)) for name in names])
        return f"{self.extension}.{hashlib.blake2b(settings.encode(), digest_size=4).hexdigest()}"

    @abstractmethod
    def open_writer(self, schema: pa.Schema, state: WriterState | None) -> BatchBufferingWriter:
        """A writer of a new file, or with a state, of a file as it was at a checkpoint."""

    def open_local_writer(
        self, file: GrowingFile, schema: pa.Schema, state: WriterState | None
    ) -> LocalWriter:
        """A writer of a file in a local directory. Sinks with a `file://` URL write through it."""
        from lakestate.sinks.files.local.writer import LocalWriter

        return LocalWriter(file, self.open_writer(schema, state))

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns that the format cannot hold, with `InvalidInputError`."""
        return

    def for_file_size(self, bytes_max: int) -> FileFormat:
        """The format with settings that suit files which end at about this size."""
        return self
