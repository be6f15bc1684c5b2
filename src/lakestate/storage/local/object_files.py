"""Reads files as objects: where an object's file is, its version, description and bytes.

`FileTree` writes files and knows nothing about objects.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from lakestate.errors import InvalidInputError
from lakestate.storage.local.errors import symbolic_link_error
from lakestate.storage.object_path import require_path
from lakestate.storage.spans import require_whole_span
from lakestate.storage.store import ByteRange, ObjectInfo, Version


def root_of(url: str) -> Path:
    """The directory that a `file://` URL names.

    >>> root_of("file:///data/my%20state")
    PosixPath('/data/my state')
    """
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidInputError(
            "not the URL of a local directory", object_name=url, expected="file:///an/absolute/path"
        )
    return Path(unquote(parts.path))


def object_file(root: Path, path: str) -> Path:
    """The file of an object. It is below the root; a symbolic link on the way is refused by its name."""
    target = root / require_path(path)
    if target.parent.resolve() != target.parent:
        above = [each for each in reversed(target.parents) if each.is_relative_to(root)]
        raise symbolic_link_error(str(next((each for each in above if each.is_symlink()), target)))
    return target


def file_version(status: os.stat_result) -> Version:
    """A version that no other content of the path has had or will have.

    Every write creates a new file, dated after the one it replaces. The change time is left out: it
    changes when a hard link is added or removed, although the content stays.
    """
    return Version(f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")


def file_info(path: str, status: os.stat_result) -> ObjectInfo:
    """The description of the file in a listing."""
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000, file_version(status))


def open_file(target: Path) -> IO[bytes]:
    """Open the file for reading. Files are never changed in place, so all reads see one version."""
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.fdopen(descriptor, "rb", buffering=0)
    except IsADirectoryError:
        os.close(descriptor)
        raise


def read_span(descriptor: int, object_name: str, span: ByteRange) -> bytes:
    """All bytes of the span."""
    data = os.pread(descriptor, span.length, span.start)
    while 0 < len(data) < span.length:
        more = os.pread(descriptor, span.length - len(data), span.start + len(data))
        if not more:
            break
        data += more
    return require_whole_span(object_name, span, data)
