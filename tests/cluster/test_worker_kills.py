"""A job on a standalone cluster whose workers fail or are slow, and share only the object store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.spark.cluster_job import ROWS_PER_EPOCH, SEED, STORE
from tests.support.spark.pipeline_process import JOB, Session
from tests.support.spark.pipelines import state_rows
from tests.support.spark.totals import Totals, bids_of, totals_after_each

import lakestate as ls
from lakestate.config import StoreConfig
from lakestate.storage import ObjectStore, open_store

if TYPE_CHECKING:
    from tests.support.spark.standalone_cluster import StandaloneCluster

# A cluster, and each wait for it, takes several times as long on a machine that is busy otherwise.
pytestmark = pytest.mark.timeout(900)

Start = Callable[..., Session]


@pytest.fixture
def start(cluster: StandaloneCluster, s3_config: StoreConfig, tmp_path: Path) -> Iterator[Start]:
    """Starts the driver of a job on a whole cluster."""
    started: list[Session] = []

    def start(*arguments: str) -> Session:
        cluster.complete()
        store = {"url": s3_config.url, "options": dict(s3_config.options)}
        env = {STORE: json.dumps(store), "TMPDIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
        command = [
            sys.executable,
            "-m",
            "tests.support.spark.cluster_job",
            cluster.url,
            str(tmp_path / "finish"),
        ]
        started.append(Session([*command, *arguments], tmp_path / "driver.log", env))
        return started[-1]

    yield start
    for session in started:
        session.kill()


def newest_epoch(store: ObjectStore) -> int:
    records = [info.path for info in store.list(f"checkpoints/{JOB}/epochs/")]
    return max((int(Path(name).stem) for name in records), default=0)


def is_in_the_middle_of(store: ObjectStore, epoch: int) -> bool:
    """Some subtask of the epoch, or of a later one, has written what is not published yet."""
    newest = newest_epoch(store)
    return newest + 1 >= epoch and any(store.list(f"checkpoints/{JOB}/checkpoints/{newest + 1}/"))


def output_rows(store: ObjectStore) -> list[tuple[Any, ...]]:
    """All rows that a reader of the output finds."""
    names = [info.path for info in store.list("out/") if not info.path.startswith("out/_")]
    tables = [pq.read_table(pa.BufferReader(store.get(name).data)) for name in names]
    return sorted((tuple(row.values()) for table in tables for row in table.to_pylist()), key=str)


def cached_runs(folder: Path) -> list[Path]:
    return [path for path in (folder / f"lakestate-cache-{os.getuid()}").rglob("*") if path.is_file()]


def finish(driver: Session, s3_config: StoreConfig, tmp_path: Path) -> None:
    """Let the job end, and compare output and state with the oracle, row by row."""
    (tmp_path / "finish").touch()
    assert driver.wait() == 0, driver.said()
    backend = ls.ParquetBackend(
        StoreConfig(f"{s3_config.url}/checkpoints", s3_config.options), cache_dir=tmp_path / "reader"
    )
    rows_read = json.loads(backend.load_checkpoint_metadata(JOB).sources[0].offsets)["row"]
    expected = totals_after_each(bids_of(SEED, -(-rows_read // ROWS_PER_EPOCH), ROWS_PER_EPOCH))
    assert output_rows(open_store(s3_config)) == expected
    newest = {row[0]: row for row in sorted(expected, key=lambda row: row[1])}
    state = [tuple(row.values()) for row in state_rows(backend, JOB, "totals", Totals(), "totals")]
    assert sorted(state) == sorted(newest.values())


@pytest.mark.full
def test_the_result_is_exact_when_each_worker_is_killed_in_the_middle_of_an_epoch(
    cluster: StandaloneCluster, start: Start, s3_config: StoreConfig, tmp_path: Path
) -> None:
    driver, store = start(), open_store(s3_config)
    first, second = list(cluster.workers)[-2:]
    driver.wait_for(lambda: is_in_the_middle_of(store, 3))
    cluster.workers[first].kill()
    cluster.await_workers(1)
    killed_in = newest_epoch(store) + 1
    third = cluster.add_worker()
    # The new worker has restored state before the other one is lost.
    driver.wait_for(lambda: bool(cached_runs(third / "tmp")))
    driver.wait_for(lambda: is_in_the_middle_of(store, killed_in + 2))
    killed_in = newest_epoch(store) + 1
    cluster.workers[second].kill()
    cluster.await_workers(1)
    driver.wait_for(lambda: newest_epoch(store) > killed_in)
    finish(driver, s3_config, tmp_path)
    assert all(cached_runs(worker / "tmp") for worker in (first, second, third))
    assert cached_runs(tmp_path) == [], "the driver's cache was used by others"


@pytest.mark.soak
def test_a_speculative_attempt_takes_the_place_of_one_that_sleeps_and_the_result_is_exact(
    start: Start, s3_config: StoreConfig, tmp_path: Path
) -> None:
    driver, store = start("--speculation"), open_store(s3_config)
    # The first attempt of a subtask of epoch 2 sleeps for longer than this waits.
    driver.wait_for(lambda: newest_epoch(store) >= 3)
    finish(driver, s3_config, tmp_path)
