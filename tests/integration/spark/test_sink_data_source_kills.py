"""A query with `format("lakestate")` killed with SIGKILL, JVM and Python workers and all, again and again.

Each driver takes ten seconds to start, so an ordinary run has one kill, at some moment of a batch;
`make soak` has more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.spark.pipelines import write_input
from tests.support.spark.sink_query_process import KilledQuery

pytest.importorskip("pyspark")

KILLS = 1
KILLS_SOAK = 12
FILE_ROWS = 100
FILES_AHEAD = 5
BATCH_S = 0.8
"""About as long as a batch takes: kills are spread over it."""


class Fed:
    """Input that stays ahead of the query."""

    def __init__(self, query: KilledQuery) -> None:
        self.query = query
        self.files = 0
        (query.folder / "in").mkdir()

    def feed(self) -> None:
        while self.files < self.query.newest_epoch() + FILES_AHEAD:
            first = self.files * FILE_ROWS
            numbers = range(first, first + FILE_ROWS)
            rows = pa.table({"n": numbers, "kind": [f"kind-{n % 3}" for n in numbers]})
            write_input(self.query.folder / "in", self.files, rows)
            self.files += 1

    def reached(self, epoch: int) -> bool:
        self.feed()
        return self.query.newest_epoch() >= epoch


@pytest.fixture
def query(tmp_path: Path) -> Iterator[KilledQuery]:
    query = KilledQuery(tmp_path)
    yield query
    query.kill_all()


# Two drivers one after the other take several times as long on a machine that is busy otherwise.
@pytest.mark.timeout(900)
def test_a_query_that_is_killed_writes_every_row_once(query: KilledQuery) -> None:
    _kill(query, KILLS, seed=20260301)


@pytest.mark.soak
def test_a_query_that_is_killed_again_and_again_writes_every_row_once(query: KilledQuery) -> None:
    _kill(query, KILLS_SOAK, seed=time.time_ns())


def _kill(query: KilledQuery, kills: int, seed: int) -> None:
    choose = random.Random(seed)
    fed = Fed(query)
    for number in range(kills):
        fed.feed()
        driver = query.start("--partitions", str(1 + number % 3))
        newest = query.newest_epoch()
        driver.wait_for(lambda goal=newest + 2: fed.reached(goal))
        driver.run_on(choose.random() * BATCH_S)
        driver.kill()
    assert query.start("--finish").wait() == 0
    out = query.folder / "out"
    assert list((out / ".lakestate" / "open").glob("*")) == [], f"seed {seed}"
    files = list(out.glob("kind=*/*.parquet"))
    rows = sorted(
        (n, path.parent.name) for path in files for n in pq.ParquetFile(path).read()["n"].to_pylist()
    )
    assert rows == [(n, f"kind=kind-{n % 3}") for n in range(fed.files * FILE_ROWS)], f"seed {seed}"
