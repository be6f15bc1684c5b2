"""A job on a standalone cluster whose workers die, with nothing shared but the object store."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.cluster_job import ROWS, ROWS_PER_EPOCH, SEED, STORE
from tests.support.pipeline_process import JOB, Session
from tests.support.pipelines import state_rows
from tests.support.totals import Totals

import lakestate as ls
from lakestate.config import StoreConfig
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.auctions import AuctionHouse

if TYPE_CHECKING:
    from tests.support.standalone_cluster import StandaloneCluster

EPOCHS = ROWS // ROWS_PER_EPOCH


@pytest.fixture
def driver(cluster: StandaloneCluster, s3_config: StoreConfig, tmp_path: Path) -> Iterator[Session]:
    store = {"url": s3_config.url, "options": dict(s3_config.options)}
    env = {STORE: json.dumps(store), "TMPDIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.support.cluster_job", cluster.url]
    session = Session(command, tmp_path / "driver.log", env)
    yield session
    session.kill()


def newest_epoch(store: ObjectStore) -> int:
    records = [info.path for info in store.list(f"checkpoints/{JOB}/epochs/")]
    return max((int(Path(name).stem) for name in records), default=0)


def is_in_the_middle_of(store: ObjectStore, epoch: int) -> bool:
    """Some subtask of the epoch, or of a later one, has written what is not published yet."""
    newest = newest_epoch(store)
    return newest + 1 >= epoch and any(store.list(f"checkpoints/{JOB}/checkpoints/{newest + 1}/"))


def expected_rows() -> list[tuple[Any, ...]]:
    """The oracle: the totals of every bidder after every epoch in which the bidder bid."""
    count, spend, rows = Counter[str](), Counter[str](), []
    for start in range(0, ROWS, ROWS_PER_EPOCH):
        bids = AuctionHouse(SEED).rows("bids", start, start + ROWS_PER_EPOCH).to_pylist()
        for bid in bids:
            count[str(bid["bidder"])] += 1
            spend[str(bid["bidder"])] += bid["price"]
        rows += [(user, count[user], float(spend[user])) for user in {str(bid["bidder"]) for bid in bids}]
    return sorted(rows)


def output_rows(store: ObjectStore) -> list[tuple[Any, ...]]:
    """All rows that a reader of the output finds."""
    names = [info.path for info in store.list("out/") if not info.path.startswith("out/_")]
    tables = [pq.read_table(pa.BufferReader(store.get(name).data)) for name in names]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def cached_runs(folder: Path) -> list[Path]:
    return [path for path in (folder / "lakestate-cache").rglob("*") if path.is_file()]


def test_the_result_is_exact_when_each_worker_is_killed_in_the_middle_of_an_epoch(
    cluster: StandaloneCluster, driver: Session, s3_config: StoreConfig, tmp_path: Path
) -> None:
    store = open_store(s3_config)
    first, second = cluster.workers
    driver.wait_for(lambda: is_in_the_middle_of(store, 3))
    cluster.workers[first].kill()
    cluster.await_workers(1)
    killed_in = newest_epoch(store) + 1
    third = cluster.add_worker()
    # The new worker has restored state before the other one is lost.
    driver.wait_for(lambda: bool(cached_runs(third / "tmp")))
    driver.wait_for(lambda: is_in_the_middle_of(store, killed_in + 2))
    cluster.workers[second].kill()
    cluster.await_workers(1)
    assert newest_epoch(store) < EPOCHS, "the job was over before its last worker was killed"
    assert driver.wait() == 0, driver.said()
    expected = expected_rows()
    assert output_rows(store) == expected
    newest = {row[0]: row for row in sorted(expected, key=lambda row: row[1])}
    backend = ls.ParquetBackend(
        StoreConfig(f"{s3_config.url}/checkpoints", s3_config.options), cache_dir=tmp_path / "reader"
    )
    state = [tuple(row.values()) for row in state_rows(backend, JOB, "totals", Totals(), "totals")]
    assert sorted(state) == sorted(newest.values())
    assert all(cached_runs(worker / "tmp") for worker in (first, second, third))
    assert cached_runs(tmp_path) == [], "the driver's cache was used by others"
