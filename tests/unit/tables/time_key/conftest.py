"""A job with one `TimeKeyTable`, and a record of the files that it opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.jobs.time_key_job import TimeKeyJob, clicks

from lakestate.protocol.values import FileRef
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.runs import run_set
from lakestate.tables.runs.run import Run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path) -> TimeKeyJob:
    return TimeKeyJob(clicks(), cache=RunCache(tmp_path, 1 << 26))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are opened."""
    paths: list[str] = []
    real = run_set.open_run

    def recorded(file: FileRef, *rest: object) -> Run:
        paths.append(file.path)
        return real(file, *rest)

    monkeypatch.setattr(run_set, "open_run", recorded)
    return paths
