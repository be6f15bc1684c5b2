"""Entries of a run cache: how tests build, read and age them."""

from __future__ import annotations

import os
from pathlib import Path

from lakestate.storage.cache.entry import EntryFiles, entry_name
from lakestate.storage.cache.run_cache import CachedFile, RunCache

KEY = "checkpoints/7/operator-count/totals-0-a1.parquet"


class Builder:
    """Writes known bytes and remembers how often it was asked."""

    def __init__(self, content: bytes = b"content of the run") -> None:
        self.content = content
        self.calls = 0

    def __call__(self, path: Path) -> None:
        self.calls += 1
        path.write_bytes(self.content)


def content(file: CachedFile) -> bytes:
    """The whole content of an entry, which is closed."""
    with file:
        return bytes(file.memory_map().read())


def only(directory: Path, pattern: str) -> Path:
    """The one file that matches."""
    [path] = directory.glob(pattern)
    return path


def age(cache: RunCache, key: str, used_s: int) -> None:
    """Let the entry look as if it was last used then."""
    os.utime(_files(cache, key).record, (used_s, used_s))


def present(cache: RunCache, key: str) -> bool:
    """Whether the cache holds the entry."""
    return Path(_files(cache, key).data).exists()


def replace_with_other_content(path: Path) -> None:
    """Rename another file of the same length over this one."""
    other = path.with_suffix(".other")
    other.write_bytes(b"CONTENT OF THE RUN")
    other.rename(path)


def _files(cache: RunCache, key: str) -> EntryFiles:
    return EntryFiles.of(cache._directory, entry_name(key))
