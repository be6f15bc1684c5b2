"""A folder that only this user can write to, inside a directory that all users share."""

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
    """This user's folder of that name in the system's temporary directory, created if necessary.

    Anyone can create a folder of any name there, so a folder that another user owns or can write to
    is refused: its content would be trusted as our own.
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
            "there is no temporary directory with write access",
            found=str(cause),
            action="set TMPDIR to one, or configure a folder of your own",
        ) from cause


def _not_private_error(path: Path, found: str) -> InvalidInputError:
    return InvalidInputError(
        "the folder does not belong to this user alone",
        object_name=str(path),
        found=found,
        expected=f"a directory of user {os.getuid()} that no other user can write to",
        action="remove it, or configure a folder of your own",
    )
