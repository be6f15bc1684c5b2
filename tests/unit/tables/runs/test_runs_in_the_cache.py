"""What tables do with the run cache of a host: its bound holds, and it never fails an epoch."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import StorageUnavailableError
from lakestate.storage.cache.run_cache import RunCache

TASK = ls.TaskInfo("job", "op")
TABLE = ls.KeyedTable("t", key="k bigint", value="n bigint")
ROWS = 5_000
EPOCHS = 8


def run_epoch(backend: ls.ParquetBackend, epoch: int) -> None:
    """Put new keys, publish, and look one of each epoch up again."""
    tables = ls.TableManager.load(TASK, [TABLE], backend, restore_from=epoch - 1 or None)
    keys = range(epoch * ROWS, (epoch + 1) * ROWS)
    tables.keyed("t").put(pa.table({"k": pa.array(keys), "n": pa.array([epoch] * ROWS)}))
    done = tables.checkpoint(epoch=epoch, min_epoch=1, watermark=None, then_stop=False)
    backend.write_checkpoint_metadata("job", epoch, [done])
    restored = ls.TableManager.load(TASK, [TABLE], backend, restore_from=epoch).keyed("t")
    asked = pa.table({"k": [number * ROWS for number in range(1, epoch + 1)]})
    assert restored.get(asked)["n"].to_pylist() == list(range(1, epoch + 1))


def mapped_and_deleted(folder: Path) -> set[str]:
    """The inodes of such files."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in maps if str(folder) in line and line.endswith("(deleted)")}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_the_disk_space_of_an_evicted_run_is_free(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    backend = ls.ParquetBackend(f"file://{tmp_path}/state", cache_dir=cache, cache_bytes=300_000)
    for epoch in range(1, EPOCHS + 1):
        run_epoch(backend, epoch)
    assert backend.cache.stats().evictions > EPOCHS // 2
    # What was evicted since the last run was opened goes when the next one is.
    assert len(mapped_and_deleted(cache)) <= 1


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["publish", "make_room"])
def test_a_full_disk_of_the_cache_costs_only_time(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"lakestate.storage.cache.space.CacheSpace.{step}", full)
    backend = ls.ParquetBackend(f"file://{tmp_path}/state", cache_dir=tmp_path / "cache")
    with caplog.at_level(logging.WARNING, "lakestate.cache"):
        for epoch in range(1, 4):
            run_epoch(backend, epoch)
    assert "the disk of the run cache is full" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        StorageUnavailableError("the disk of the run cache is full"),
        # A bad sector: the system names no file.
        OSError(errno.EIO, os.strerror(errno.EIO)),
    ],
)
@pytest.mark.parametrize("step", ["find", "open"])
def test_a_cache_that_cannot_be_read_costs_only_time(
    step: str,
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(RunCache, step, fails)
    backend = ls.ParquetBackend(f"file://{tmp_path}/state", cache_dir=tmp_path / "cache")
    with caplog.at_level(logging.WARNING, "lakestate.cache"):
        for epoch in range(1, 4):
            run_epoch(backend, epoch)
    assert "fetched again" in caplog.text
