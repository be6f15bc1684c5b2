"""A run cache in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakestate.storage.cache.run_cache import RunCache


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(directory: Path) -> RunCache:
    return RunCache(directory, bytes_max=1000)
