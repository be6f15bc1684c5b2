"""The folder in the temporary directory that belongs to this user alone."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest

from lakestate.errors import InvalidInputError, StorageUnavailableError
from lakestate.storage.local.private_folder import private_temporary_folder


def test_the_default_folder_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = private_temporary_folder("cache")
    assert folder == private_temporary_folder("cache") == tmp_path / f"cache-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("found", ["not a directory", "a directory of user", "drwxrwxrwx"])
def test_a_default_folder_that_others_can_fill_is_refused(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = private_temporary_folder("cache")
    if found == "not a directory":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif found == "drwxrwxrwx":
        folder.chmod(0o777)
    else:
        stranger = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: stranger)
        folder.rename(tmp_path / f"cache-{stranger}")
    with pytest.raises(InvalidInputError, match=found):
        private_temporary_folder("cache")


def test_a_default_folder_that_cannot_be_made_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", full)
        with pytest.raises(StorageUnavailableError, match="the disk is full"):
            private_temporary_folder("cache")
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(InvalidInputError, match=r"no temporary directory .* set TMPDIR"):
        private_temporary_folder("cache")
