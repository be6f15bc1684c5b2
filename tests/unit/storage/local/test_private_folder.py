"""Folders that belong to this user alone: the default one, and those that users name."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest

from lakestate.errors import InvalidInputError, StorageUnavailableError
from lakestate.storage.local.private_folder import private_temporary_folder, require_private_folder


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


def test_a_named_folder_is_created_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = require_private_folder(tmp_path / "a" / "cache")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)]
    assert (folder, modes) == (tmp_path / "a" / "cache", [0o700, 0o700])


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702, 0o1777])
def test_a_named_folder_that_others_can_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "our cache"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(InvalidInputError) as refusal:
        require_private_folder(folder)
    remedy = f"chmod go-w '{folder}'"
    assert stat.filemode(folder.stat().st_mode) in str(refusal.value)
    assert remedy in str(refusal.value)
    os.system(remedy)
    assert require_private_folder(folder) == folder


def test_a_named_folder_that_others_can_only_read_is_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o755)
    assert require_private_folder(folder) == folder


def test_a_named_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)
    with pytest.raises(InvalidInputError, match="a directory of user"):
        require_private_folder(tmp_path)


def test_a_named_folder_is_refused_where_every_user_can_replace_it(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "cache"
    folder.mkdir(mode=0o700, parents=True)
    folder.parent.chmod(0o777)
    with pytest.raises(InvalidInputError, match=f"chmod o-w {folder.parent}"):
        require_private_folder(folder)
    folder.parent.chmod(0o1777)
    assert require_private_folder(folder) == folder


def test_the_folder_that_a_link_leads_to_is_the_one_that_counts(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    target.mkdir()
    link.symlink_to(target)
    assert require_private_folder(link) == target
    target.chmod(0o777)
    with pytest.raises(InvalidInputError, match="drwxrwxrwx"):
        require_private_folder(link)
