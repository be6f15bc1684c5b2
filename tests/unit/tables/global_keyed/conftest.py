"""Tests of global keyed tables run without a run cache, with the cache of one host, and on new hosts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.support.jobs.replicated_operator import ReplicatedOperator

from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.global_keyed import layer_plan, reader

CACHE_BYTES_MAX = 1 << 30


@pytest.fixture(autouse=True, params=["no-cache", "one-host", "new-hosts"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where operators are restored."""
    numbers = itertools.count()
    one = RunCache(tmp_path / "host", CACHE_BYTES_MAX)
    caches = {
        "no-cache": lambda: None,
        "one-host": lambda: one,
        "new-hosts": lambda: RunCache(tmp_path / f"host-{next(numbers)}", CACHE_BYTES_MAX),
    }
    # As with many entries: lookups search, and there are several layers.
    monkeypatch.setattr(reader, "ENTRIES_PER_LOOKUP", 0.001)
    monkeypatch.setattr(layer_plan, "MERGED_BYTES_MIN", 0)
    monkeypatch.setattr(ReplicatedOperator, "find_cache", staticmethod(caches[request.param]))
    return str(request.param)
