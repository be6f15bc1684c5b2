"""Folders that only this user can write to, also inside a directory that all users share.

What such a folder holds is trusted as our own. Whoever can write to it, or can put another folder in
its place, can decide what a job computes.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from lakestate.errors import InvalidInputError
from lakestate.storage.local.errors import translate_write_errors

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_PRIVATE_MODE = 0o700


def require_private_folder(path: Path) -> Path:
    """The real path of a folder that no other user can write to, created if necessary.

    Refuses a folder of another user, one that its group or others can write to, and one below a
    directory that everybody can write to, because there everybody can replace it. A directory with
    the sticky bit, such as `/tmp`, lets nobody replace the folder of another user.
    """
    real = path.resolve()
    missing = [each for each in real.parents if not each.exists()]
    for folder in (*reversed(missing), real):
        folder.mkdir(mode=_PRIVATE_MODE, exist_ok=True)
    _require_private(real, real.stat())
    for above in real.parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _replaceable_error(real, above, mode)
    return real


def private_temporary_folder(name: str) -> Path:
    """This user's folder of that name in the system's temporary directory, created if necessary.

    Anyone can create a folder of any name there, so a folder that another user owns or can write to
    is refused.
    """
    path = Path(_temporary_directory()) / f"{name}-{os.getuid()}"
    with translate_write_errors(str(path)):
        with suppress(FileExistsError):
            path.mkdir(mode=_PRIVATE_MODE)
        _require_private(path, path.lstat())
    return path


def _require_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise _not_private_error(path, "something that is not a directory", "remove it")
    if found.st_uid != os.getuid():
        raise _not_private_error(path, f"a directory of user {found.st_uid}", "remove it")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise _not_private_error(
            path,
            f"a directory with permissions {stat.filemode(found.st_mode)}",
            f"empty it, because others may have written to it, and run: chmod go-w {shlex.quote(str(path))}",
        )


def _temporary_directory() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as cause:
        raise InvalidInputError(
            "there is no temporary directory with write access",
            found=str(cause),
            action="set TMPDIR to one, or configure a folder of your own",
        ) from cause


def _not_private_error(path: Path, found: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(
        "the folder does not belong to this user alone",
        object_name=str(path),
        found=found,
        expected=f"a directory of user {os.getuid()} that no other user can write to",
        action=f"{remedy}; or configure a folder of your own",
    )


def _replaceable_error(path: Path, above: Path, mode: int) -> InvalidInputError:
    return InvalidInputError(
        "every user of the host can replace the folder",
        object_name=str(path),
        found=f"{above} with permissions {stat.filemode(mode)}",
        expected="directories above it to which others cannot write, or with the sticky bit",
        action=f"run: chmod o-w {shlex.quote(str(above))}; or configure a folder elsewhere",
    )
