"""Files of an Iceberg table as pyiceberg reads and writes them: each is one call of a simulated store."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from lakestate.errors import NotFoundError, OutcomeUnknownError, StorageUnavailableError
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.stores.store import SimulatedStore

Call = Callable[[Operation, str, Callable[[], Any]], Any]
METADATA = "_metadata"
"""The folder of metadata in the store, whose root has the data files."""


class SimulatedFileIO(FileIO):
    """The files of a table at a location, as one process reaches them."""

    def __init__(self, store: SimulatedStore, location: str, call: Call) -> None:
        super().__init__({})
        self._store = store
        self._location = location
        self._call = call

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return _Input(location, self)

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        return _Output(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        path = self.path(location if isinstance(location, str) else location.location)
        self.call(Operation.DELETE, path, partial(self._store.delete_many, [path]))

    def read(self, location: str) -> bytes:
        """A whole file."""
        path = self.path(location)
        return bytes(self.call(Operation.GET, path, lambda: self._store.get(path).data))

    def write(self, location: str, data: bytes) -> None:
        """Write a whole file."""
        path = self.path(location)
        self.call(Operation.PUT, path, partial(self._store.put, path, data))

    def exists(self, location: str) -> bool:
        """Whether there is such a file."""
        return self._store.contains(self.path(location))

    def call(self, operation: Operation, path: str, act: Callable[[], Any]) -> Any:
        """One call. Its errors are those of a file system."""
        # The names are of pyiceberg, and other ones in each run.
        what = "manifest" if path.startswith(METADATA) else "data file"
        try:
            return self._call(operation, what, act)
        except (StorageUnavailableError, OutcomeUnknownError) as failed:
            raise OSError(str(failed)) from failed
        except NotFoundError as missing:
            raise FileNotFoundError(str(missing)) from missing

    def path(self, location: str) -> str:
        """Where the store has a file."""
        below = location.removeprefix(f"{self._location}/")
        if below.startswith("data/"):
            return below.removeprefix("data/")
        return below.replace("metadata", METADATA, 1)


class _Input(InputFile):
    def __init__(self, location: str, files: SimulatedFileIO) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self._files.read(self.location))

    def exists(self) -> bool:
        return self._files.exists(self.location)

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self._files.read(self.location))


class _Output(OutputFile):
    def __init__(self, location: str, files: SimulatedFileIO) -> None:
        super().__init__(location)
        self._files = files
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self._files.exists(self.location)

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        return _Buffer(self._finish)

    def _finish(self, data: bytes) -> None:
        self._size = len(data)
        self._files.write(self.location, data)


class _Buffer(io.BytesIO):
    """Bytes that are written when the file is closed, as object stores do."""

    def __init__(self, finish: Callable[[bytes], None]) -> None:
        super().__init__()
        self._finish: Callable[[bytes], None] | None = finish

    def close(self) -> None:
        finish, self._finish = self._finish, None
        data = b"" if finish is None else self.getvalue()
        super().close()
        if finish is not None:
            finish(data)

    def __del__(self) -> None:
        # A file that is given up is not written.
        self._finish = None
        super().close()
