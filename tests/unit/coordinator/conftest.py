"""The stores that the workflows of the driver are tested over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.small_job import fresh_memory

from lakestate.storage import ObjectStore, open_store


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_memory() if request.param == "memory" else open_store(f"file://{tmp_path}")


@pytest.fixture
def memory() -> ObjectStore:
    return fresh_memory()
