"""Where the snapshots of a local sink are: below the hidden folder, by partition."""

from __future__ import annotations

import os
from pathlib import Path

from lakestate.errors import CorruptionError, NotFoundError
from lakestate.sinks.files.local.stored_bytes import checksum_of, size_of
from lakestate.sinks.files.snapshots import LOCAL_FOLDER
from lakestate.storage.local.errors import symbolic_link_error, translate_write_errors
from lakestate.storage.local.file_tree import FileTree, fsync_folder
from lakestate.storage.object_path import require_path

_ATTEMPTS_MAX = 3


class SnapshotFolder:
    """Paths are those that a manifest names, below the root of the output."""

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        self._root = tree.root / LOCAL_FOLDER

    def require_place(self, path: str) -> None:
        """Refuse a path that a symbolic link is part of, before the epoch is published."""
        self.file(path)

    def publish(self, hidden: Path, path: str, size_bytes: int) -> None:
        """Move a complete copy into place. Doing it again is success."""
        target = self.file(path)
        with translate_write_errors(str(target)):
            for _ in range(_ATTEMPTS_MAX):
                if size_of(target) == size_bytes:
                    return
                _require_size(hidden, size_bytes)
                self._tree.ensure_folder(target.parent)
                try:
                    hidden.rename(target)
                except FileNotFoundError:
                    # Either the copy is gone, or another process has just removed the empty folder.
                    if size_of(hidden) is None and size_of(target) is None:
                        break
                    continue
                fsync_folder(target.parent)
                fsync_folder(hidden.parent)
                return
        raise NotFoundError("a copy of an open file is gone", object_name=str(hidden), expected=str(target))

    def remove(self, path: str) -> None:
        """Remove a copy, and folders that become empty; one that is gone is success."""
        target = self.file(path)
        with translate_write_errors(str(target)):
            self._tree.remove(target)
            self._tree.prune(target.parent)

    def size_bytes(self, path: str) -> int | None:
        """The length of a copy; None if it is gone."""
        return size_of(self.file(path))

    def checksum(self, path: str, size_bytes: int) -> int | None:
        """The CRC-32 of the first bytes of a copy; None if it is gone or not that long."""
        return checksum_of(self.file(path), size_bytes)

    def paths(self) -> list[str]:
        """The paths of all copies."""
        found = (Path(folder) / name for folder, _, names in os.walk(self._root) for name in names)
        return sorted(str(file.relative_to(self._tree.root)) for file in found)

    def file(self, path: str) -> Path:
        """The file of a copy. It is in this folder; symbolic links are refused."""
        inside = path.removeprefix(f"{LOCAL_FOLDER}/")
        if inside == path:
            raise CorruptionError(
                "not the path of a snapshot", object_name=path, expected=f"{LOCAL_FOLDER}/…"
            )
        target = self._root / require_path(inside)
        if target.parent.resolve() != target.parent:
            raise symbolic_link_error(str(target.parent))
        return target


def _require_size(hidden: Path, expected: int) -> None:
    found = size_of(hidden)
    if found not in (None, expected):
        raise CorruptionError(
            "a copy of an open file is not as long as it was",
            object_name=str(hidden),
            found=f"{found} bytes",
            expected=f"{expected} bytes",
        )
