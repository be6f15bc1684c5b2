"""Translates errors of the operating system into our own.

The same error number means different things when reading and when writing, hence two contexts.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError, LakestateError, NotFoundError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_BLOCKED = {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY}
_UNNAMEABLE = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}


@contextmanager
def translate_read_errors(object_name: str) -> Iterator[None]:
    """Translate what can go wrong when an object is read."""
    try:
        yield
    except OSError as error:
        if error.errno in _ABSENT:
            raise NotFoundError("no such object", object_name=object_name) from error
        raise _translation(error, object_name) from error


@contextmanager
def translate_write_errors(object_name: str) -> Iterator[None]:
    """Translate what can go wrong when an object is written."""
    try:
        yield
    except OSError as error:
        raise _translation(error, object_name) from error


def _translation(error: OSError, object_name: str) -> LakestateError:
    found = error.strerror or str(error)
    code = error.errno
    if code in _FULL:
        action = "nothing was written; free some space and try again"
        return StorageUnavailableError(
            "the disk is full", object_name=object_name, found=found, action=action
        )
    if code in _DENIED:
        action = "check the owner and mode of the directory"
        return InvalidInputError("access denied", object_name=object_name, found=found, action=action)
    if code == errno.ELOOP:
        # The link may be a file of ours, such as a lock, and not the object.
        return symbolic_link_error(str(error.filename or object_name))
    if code in _BLOCKED:
        action = "on local files, no object can be below another object"
        return InvalidInputError("the path is blocked", object_name=object_name, found=found, action=action)
    if code in _UNNAMEABLE:
        return InvalidInputError(
            "the file system does not accept the name", object_name=object_name, found=found
        )
    action = "check the disk and try again"
    return StorageUnavailableError(
        "the file system failed", object_name=object_name, found=found, action=action
    )


def symbolic_link_error(object_name: str) -> InvalidInputError:
    """The error for a symbolic link: it may lead out of the root, so none is followed."""
    return InvalidInputError(
        "a symbolic link below the store's root is not followed",
        object_name=object_name,
        action="remove the link, or replace it with what it points to, or make it the root of the store",
    )
