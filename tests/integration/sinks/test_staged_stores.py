"""Staged rows on a local disk and in S3: written, lost drivers, verified, delivered, collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.sinks.staged.test_staged_sink import SCHEMA, Delivered, numbers, staged_paths

import lakestate as ls
from lakestate.testing.sink_harness import CrashPoint, SinkHarness


@pytest.mark.parametrize("place", ["local", "s3"])
def test_rows_wait_in_the_store_until_they_are_delivered(
    request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    checkpoint: Any = tmp_path if place == "local" else request.getfixturevalue("s3_config")
    backend = ls.ParquetBackend(checkpoint, cache_bytes=0)
    harness = SinkHarness(Delivered(), SCHEMA, parallelism=2, keep_epochs=2, backend=backend)
    harness.crash(CrashPoint.BEFORE_PUBLISHING, numbers(1), numbers(2))
    harness.restart()
    assert staged_paths(harness) == []
    harness.crash(CrashPoint.BEFORE_COMMIT, pa.Table.from_pylist(numbers(*range(5000)), SCHEMA), numbers(9))
    assert ls.verify(backend, "job").is_clean
    harness.restart()
    for number in range(4):
        harness.epoch(numbers(number))
    assert harness.sink.calls == [(1, [*range(5000), 9]), *((n + 2, [n]) for n in range(4))]
    assert [path.split("/")[2] for path in staged_paths(harness)] == ["4", "5"]
