"""What the run cache leaves behind and says when a build or its directory fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.support.storage.run_cache import (
    KEY,
    Builder,
    content,
    replace_with_other_content,
)

from lakestate.errors import InvalidInputError, StorageUnavailableError
from lakestate.storage.cache.run_cache import RunCache


def test_a_failing_build_leaves_nothing_behind(cache: RunCache, directory: Path) -> None:
    def build(path: Path) -> None:
        path.write_bytes(b"half of it")
        raise ConnectionResetError("the store went away")

    with pytest.raises(ConnectionResetError, match="the store went away"):
        cache.open(KEY, build)
    assert [path for path in directory.iterdir() if path.is_file()] == []
    assert content(cache.open(KEY, Builder())) == b"content of the run"


def test_a_build_that_replaces_its_file_is_refused(cache: RunCache, directory: Path) -> None:
    with pytest.raises(InvalidInputError, match="written in place"):
        cache.open(KEY, replace_with_other_content)
    assert [path for path in directory.iterdir() if path.is_file()] == []


def test_a_full_disk_is_named(cache: RunCache, directory: Path) -> None:
    def build(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageUnavailableError, match="disk of the run cache is full") as caught:
        cache.open(KEY, build)
    assert caught.value.object_name == str(directory)
    assert list(directory.glob("*.*")) == []


def test_a_disk_that_is_full_for_the_record_leaves_nothing_behind(
    cache: RunCache, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(files: object, record: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("lakestate.storage.cache.run_cache.write_record", full)
    with pytest.raises(StorageUnavailableError, match="free some space"):
        cache.open(KEY, Builder())
    assert list(directory.glob("*.*")) == []


def test_a_directory_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    with pytest.raises(InvalidInputError, match="cannot use its directory") as caught:
        RunCache(tmp_path / "cache", 1000)
    assert caught.value.object_name == str(tmp_path / "cache")


def test_a_directory_without_permission_is_refused_by_name(
    cache: RunCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str, *arguments: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(InvalidInputError, match=r"Permission denied.*configure another"):
        cache.open(KEY, Builder())


def test_a_directory_removed_under_our_feet_is_made_again(cache: RunCache, directory: Path) -> None:
    cache.open(KEY, Builder()).close()
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
    assert content(cache.open(KEY, Builder())) == b"content of the run"
