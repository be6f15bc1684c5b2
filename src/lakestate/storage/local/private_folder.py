"""A folder that nobody but this user can have filled, in a place that all users share."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from lakestate.errors import InvalidInputError
from lakestate.storage.local.errors import translate_write_errors

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def private_temporary_folder(name: str) -> Path:
    """This user's folder of that name in the system's temporary directory, made if it is not there.

    Anybody may make a folder in that directory under any name, so one that another user owns or
    may write to is refused: what lies in it would be read as our own.
    """
    path = Path(_temporary_directory()) / f"{name}-{os.getuid()}"
    with translate_write_errors(str(path)):
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _not_private_error(path, "something that is not a directory")
    if found.st_uid != os.getuid():
        raise _not_private_error(path, f"a directory of user {found.st_uid}")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise _not_private_error(path, f"a directory with permissions {stat.filemode(found.st_mode)}")
    return path


def _temporary_directory() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as cause:
        raise InvalidInputError(
            "there is no temporary directory that can be written to",
            found=str(cause),
            action="set TMPDIR to one, or name a folder of your own",
        ) from cause


def _not_private_error(path: Path, found: str) -> InvalidInputError:
    return InvalidInputError(
        "the folder is not this user's alone",
        object_name=str(path),
        found=found,
        expected=f"a directory of user {os.getuid()} that nobody else may write to",
        action="remove it, or name a folder of your own",
    )
