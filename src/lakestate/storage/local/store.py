"""An object store in a directory, for one machine or a shared file system with POSIX locks.

Create and compare-and-swap are atomic between processes, provided that all of them open the same
root, because the locks are kept below it. A new name is linked into place without a lock, so a
process that is stopped in the middle of a write delays only those that change the same objects.
Layout of `.lakestate/`: `tmp`, `locks`, `uploads`.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakestate.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from lakestate.storage.local.errors import symbolic_link_error, translate_read_errors, translate_write_errors
from lakestate.storage.local.file_tree import FileTree, TemporaryFile
from lakestate.storage.local.object_files import (
    file_info,
    file_version,
    object_file,
    open_file,
    read_span,
    root_of,
)
from lakestate.storage.multipart.local import LocalUploads
from lakestate.storage.object_path import RESERVED, require_folder, require_prefix
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.spans import check_spans
from lakestate.storage.store import (
    AlreadyExists,
    ByteRange,
    Created,
    CreateOutcome,
    Data,
    MultipartUploads,
    ObjectInfo,
    StoredObject,
    SwapConflict,
    SwapOutcome,
    Swapped,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakestate.config import StoreConfig


CREATE_ATTEMPTS = 100
"""How often `create` retries when an object appears and is deleted before it can be read."""


class LocalStore:
    """Objects as files below one directory. See `ObjectStore` for what each method promises."""

    def __init__(self, config: StoreConfig) -> None:
        if config.options:
            names = ", ".join(sorted(config.options))
            raise InvalidInputError("local files take no options", object_name=config.url, found=names)
        self._config = config
        self._url = config.url.rstrip("/")
        self._files = FileTree(root_of(config.url))
        self._uploads = LocalUploads(self._files, self._url)

    def __repr__(self) -> str:
        return f"LocalStore({self._url!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[StoreConfig]]:
        from lakestate.storage.opening import open_store

        return (open_store, (self._config,))

    @property
    def url(self) -> str:
        """The root, as it was given."""
        return self._url

    @property
    def uploads(self) -> MultipartUploads:
        """Multipart uploads, kept as part files until completion."""
        return self._uploads

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object, replacing any previous content."""
        return self._write(path, partial(TemporaryFile.append, data=data))

    def get(self, path: str) -> StoredObject:
        """The whole object."""
        name = self._name(path)
        with translate_read_errors(name), open_file(self._file(path)) as file:
            return StoredObject(file.read(), file_version(os.fstat(file.fileno())))

    def get_range(self, path: str, span: ByteRange) -> bytes:
        """One range of the object."""
        return self.get_ranges(path, [span])[0]

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Several ranges, all of the same version of the object."""
        name = self._name(path)
        check_spans(name, spans)
        with translate_read_errors(name), open_file(self._file(path)) as file:
            return [read_span(file.fileno(), name, span) for span in spans]

    def get_many(self, paths: Sequence[str]) -> list[StoredObject]:
        """Several objects, in the order requested."""
        return map_in_parallel(self.get, paths)

    def head(self, path: str) -> ObjectInfo:
        """Size, time and version of the object."""
        name = self._name(path)
        with translate_read_errors(name), open_file(self._file(path)) as file:
            return file_info(path, os.fstat(file.fileno()))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose path begins with the prefix, in order of path."""
        folder, _, stem = require_prefix(prefix).rpartition("/")
        self._refuse_link(folder)
        return self._walk(folder, stem)

    def list_folders(self, folder: str = "") -> Sequence[str]:
        """The folders directly below a folder."""
        parent = require_folder(folder).rstrip("/")
        self._refuse_link(parent)
        with translate_read_errors(self._name(parent)):
            entries = _entries(self._files.root / parent)
        return sorted(entry.name for entry in entries if _is_folder(entry))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete the objects, and the folders that become empty."""
        folders = set()
        for path in paths:
            target = self._file(path)
            with translate_write_errors(self._name(path)), self._files.lock(path):
                self._files.remove(target)
            folders.add(target.parent)
        for folder in sorted(folders, reverse=True):
            with translate_write_errors(str(folder)):
                self._files.prune(folder)

    def create(self, path: str, data: Data) -> CreateOutcome:
        """Write the object only if it does not exist."""
        for _ in range(CREATE_ATTEMPTS):
            existing = self._find(path)
            if existing is not None:
                return AlreadyExists(existing)
            version = self._link_new(path, data)
            if version is not None:
                return Created(version)
        raise StorageUnavailableError(
            "the object is created and deleted repeatedly",
            object_name=self._name(path),
            action="find out which process deletes it",
        )

    def compare_and_swap(self, path: str, data: Data, expected: Version) -> SwapOutcome:
        """Replace the object only if it has the expected version."""
        target = self._file(path)
        with translate_write_errors(self._name(path)), self._files.temporary() as file:
            file.append(data)
            file.sync()
            with self._files.lock(path):
                existing = self._find(path)
                if existing is None or existing.version != expected:
                    return SwapConflict(existing)
                self._files.publish_replacing(file, target)
            return Swapped(file_version(os.fstat(file.descriptor)))

    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy the bytes. A hard link would share the version of its source."""
        with translate_read_errors(self._name(source)), open_file(self._file(source)) as reader:
            return self._write(target, partial(TemporaryFile.append_from, reader=reader))

    def _write(self, path: str, fill: Callable[[TemporaryFile], None]) -> ObjectInfo:
        target = self._file(path)
        with translate_write_errors(self._name(path)), self._files.temporary() as file:
            fill(file)
            file.sync()
            try:
                self._files.publish_new(file, target)
            except FileExistsError:
                with self._files.lock(path):
                    self._files.publish_replacing(file, target)
            return file_info(path, os.fstat(file.descriptor))

    def _link_new(self, path: str, data: Data) -> Version | None:
        target = self._file(path)
        with translate_write_errors(self._name(path)), self._files.temporary() as file:
            file.append(data)
            file.sync()
            try:
                self._files.publish_new(file, target)
            except FileExistsError:
                if target.is_dir():
                    raise
                return None
            return file_version(os.fstat(file.descriptor))

    def _find(self, path: str) -> StoredObject | None:
        try:
            return self.get(path)
        except NotFoundError:
            return None

    def _walk(self, folder: str, stem: str) -> Iterator[ObjectInfo]:
        with translate_read_errors(self._name(folder)):
            entries = _entries(self._files.root / folder)
        for entry in sorted(entries, key=_listing_key):
            if not entry.name.startswith(stem) or entry.name == RESERVED:
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path, "")
            elif entry.is_file(follow_symlinks=False):
                info = _entry_info(path, entry)
                if info is not None:
                    yield info

    def _refuse_link(self, folder: str) -> None:
        if (self._files.root / folder).resolve() != self._files.root / folder:
            raise symbolic_link_error(self._name(folder))

    def _file(self, path: str) -> Path:
        return object_file(self._files.root, path)

    def _name(self, path: str) -> str:
        return f"{self._url}/{path}"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            # A name that is not valid text is not ours, and no path can reach it.
            return [entry for entry in entries if _is_text(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.name != RESERVED and entry.is_dir(follow_symlinks=False)


def _is_text(name: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in name)


def _listing_key(entry: os.DirEntry[str]) -> str:
    # "a-b" comes before "a/b" in order of path, although "a" comes before "a-b".
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _entry_info(path: str, entry: os.DirEntry[str]) -> ObjectInfo | None:
    try:
        return file_info(path, entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None
