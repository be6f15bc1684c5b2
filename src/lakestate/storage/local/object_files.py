"""How a file is seen as an object: its place, its version, its description, its bytes.

Reads only. `FileTree` writes files, and knows nothing of objects.
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


def object_file(root: Path, path: str, object_name: str) -> Path:
    """The file of an object, which lies below the root even if there are symbolic links."""
    target = root / require_path(path)
    if target.parent.resolve() != target.parent:
        raise symbolic_link_error(object_name)
    return target


def file_version(status: os.stat_result) -> Version:
    """What tells this content from every other that the path had or will have.

    Every write makes a new file, dated after the one that it replaces. The change time is left
    out: it moves when a hard link comes or goes, while the content stays.
    """
    return Version(f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")


def file_info(path: str, status: os.stat_result) -> ObjectInfo:
    """What a listing says about the file."""
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000, file_version(status))


def open_file(target: Path) -> IO[bytes]:
    """The file, opened for reading. A file is never changed in place, so all reads agree."""
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.fdopen(descriptor, "rb", buffering=0)
    except IsADirectoryError:
        os.close(descriptor)
        raise


def read_span(descriptor: int, object_name: str, span: ByteRange) -> bytes:
    """The bytes of the span, all of them."""
    data = os.pread(descriptor, span.length, span.start)
    while 0 < len(data) < span.length:
        more = os.pread(descriptor, span.length - len(data), span.start + len(data))
        if not more:
            break
        data += more
    return require_whole_span(object_name, span, data)
