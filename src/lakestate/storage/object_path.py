"""Which object paths a store accepts.

The rules are the same for every store, so a job can move from local files to S3 unchanged. They
are checked before any I/O: a path read from a manifest can never leave the store's root.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from lakestate.errors import InvalidInputError

RESERVED = ".lakestate"
"""The folder in which a store keeps everything that is not an object: temporary files, locks, parts."""

PATH_BYTES_MAX = 1024
"""The longest key that S3 accepts. A store's own prefix counts too: see `require_key`."""

PART_BYTES_MAX = 255
"""The longest file name that Linux accepts."""

_CONTROL = re.compile("[\\x00-\\x1f\\x7f]")
_SURROGATE = re.compile("[\\ud800-\\udfff]")


def require_path(path: str) -> str:
    """The path itself, if it may name an object.

    >>> require_path("epochs/0000000001.json")
    'epochs/0000000001.json'
    """
    parts = path.split("/")
    fault = _text_fault(path) or next(filter(None, map(_part_fault, parts)), None)
    if fault is not None:
        raise _invalid_path_error("not an object path", path, fault)
    return path


def require_key(url: str, path: str) -> str:
    """The path itself, if it may name an object of the store at the URL, whose prefix counts too.

    >>> require_key("s3://bucket/folder", "a.parquet")
    'a.parquet'
    """
    parts = urlsplit(url)
    prefix = "" if parts.scheme == "file" else unquote(parts.path).strip("/")
    require_path(f"{prefix}/{path}" if prefix else path)
    return path


def require_prefix(prefix: str) -> str:
    """The prefix itself, if paths can begin with it. Its last part may be incomplete."""
    folders = prefix.split("/")[:-1]
    fault = _text_fault(prefix) or next(filter(None, map(_part_fault, folders)), None)
    if fault is not None:
        raise _invalid_path_error("not a prefix of object paths", prefix, fault)
    return prefix


def require_folder(folder: str) -> str:
    """The folder itself, if it is the root or ends with a slash.

    >>> require_folder(""), require_folder("job/")
    ('', 'job/')
    """
    if folder and not folder.endswith("/"):
        raise _invalid_path_error("not a folder", folder, "no slash at the end")
    return require_prefix(folder)


def is_reserved(path: str) -> bool:
    """Whether the path is in a reserved folder, of this store or of one rooted below it."""
    return RESERVED in path.split("/")


def _text_fault(path: str) -> str | None:
    if _CONTROL.search(path):
        return "a control character"
    if _SURROGATE.search(path):
        return "a lone surrogate, which is not valid text"
    if len(path.encode()) > PATH_BYTES_MAX:
        return f"more than {PATH_BYTES_MAX} bytes"
    return None


def _part_fault(part: str) -> str | None:
    if part == "":
        return "an empty part, or a leading or trailing slash"
    if part in (".", ".."):
        return f"the part {part!r}"
    if part == RESERVED:
        return f"the reserved part {RESERVED!r}"
    if len(part.encode()) > PART_BYTES_MAX:
        return f"a part of more than {PART_BYTES_MAX} bytes"
    return None


def _invalid_path_error(summary: str, path: str, fault: str) -> InvalidInputError:
    return InvalidInputError(
        summary, object_name=repr(path[:200]), found=fault, expected="a relative path such as 'epochs/1.json'"
    )
