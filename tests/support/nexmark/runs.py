"""Running a query of Nexmark, with things that go wrong on the way.

`run_interrupted` uses the session that all tests share; `run_killed` starts drivers of its own and kills one.
As a module it is such a driver.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.nexmark.job import Feed, query_job
from tests.support.nexmark.output import EACH_EPOCH, Rows, read_written, result_of
from tests.support.spark.pipeline_process import DEADLINE_S, Session, local_spark, own_python_workers
from tests.support.spark.pipelines import wait_for

import lakestate as ls
from lakestate.row_kind import RowKind, StreamKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIVES_MAX = 4
KIND = "kind.json"
"""The file in which a driver says what the rows of its query mean."""
PACE = "500 milliseconds"
"""Slow enough that the test sees an epoch begin before all are over."""


def run_interrupted(spark: SparkSession, query: str, feed: Feed, folder: Path) -> Rows:
    """Cancel an epoch, continue on another host with more subtasks, and kill a Python worker there."""
    job = query_job(query, spark, feed, folder, cache_dir=folder / "cache", roll=EACH_EPOCH)
    first = job.pipeline.start(trigger={"processingTime": PACE})
    wait_for(lambda: _is_in_an_epoch(folder, query, 1), first, DEADLINE_S)
    with suppress(ls.StopTimeoutError):
        first.stop(timeout=0)
    reached = newest_epoch(folder, query)
    assert reached < feed.events // feed.events_per_epoch, "it was done before it was interrupted"
    settings = {"cache_dir": folder / "other-cache", "roll": EACH_EPOCH, "parallelism": 3}
    for life in range(LIVES_MAX):
        job = query_job(query, spark, feed, folder, **settings)
        second = job.pipeline.start(trigger={"availableNow": True})
        if life == 0:
            wait_for(lambda: newest_epoch(folder, query) > reached, second, DEADLINE_S)
            _kill_worker()
        if _has_ended_well(second):
            return result_of(read_written(folder / "out"), job.kind)
    raise AssertionError(f"it failed {LIVES_MAX} times")


def run_killed(query: str, feed: Feed, folder: Path) -> Rows:
    """Kill a driver with its JVM and its Python workers in the middle of an epoch, and start another one."""
    driver = _start_driver(query, feed, folder, "first")
    try:
        driver.wait_for(lambda: _is_in_an_epoch(folder, query, 1))
    finally:
        driver.kill()
    assert newest_epoch(folder, query) < feed.events // feed.events_per_epoch
    driver = _start_driver(query, feed, folder, "second")
    try:
        assert driver.wait() == 0, driver.said()
    finally:
        driver.kill()
    kind = json.loads((folder / KIND).read_text())
    return result_of(read_written(folder / "out"), StreamKind(RowKind(kind["kind"]), tuple(kind["key"])))


def newest_epoch(folder: Path, query: str) -> int:
    """The newest published epoch; 0 before the first."""
    records = (folder / "checkpoints" / query / "epochs").glob("*.json")
    return max((int(record.stem) for record in records), default=0)


def _is_in_an_epoch(folder: Path, query: str, reached: int) -> bool:
    """Whether an epoch is published, and something of the next one is written, or it is published too."""
    newest = newest_epoch(folder, query)
    begun = folder / "checkpoints" / query / "checkpoints" / str(newest + 1)
    return newest > reached or (newest == reached and begun.exists())


def _kill_worker() -> None:
    """A process that runs tasks, or the one in which a source finds its offsets: the query then fails."""
    workers = own_python_workers()
    with suppress(ProcessLookupError):
        os.kill(workers[-1], signal.SIGKILL)


def _has_ended_well(query: ls.PipelineQuery) -> bool:
    with suppress(Exception):
        query.awaitTermination(DEADLINE_S)
    failed = query.exception() is not None
    query.stop(finish_files=not failed)
    return not failed


def _start_driver(query: str, feed: Feed, folder: Path, name: str) -> Session:
    scratch = folder / name
    scratch.mkdir()
    command = [
        sys.executable,
        "-m",
        "tests.support.nexmark.runs",
        query,
        json.dumps(asdict(feed)),
        str(folder),
    ]
    env = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "PYSPARK_PYTHON": sys.executable}
    return Session(command, folder / f"{name}.log", env)


def main() -> None:
    """A driver: run a query to its end."""
    query, feed, folder = sys.argv[1:]
    job = query_job(query, local_spark(), Feed(**json.loads(feed)), Path(folder), roll=EACH_EPOCH)
    (Path(folder) / KIND).write_text(json.dumps({"kind": job.kind.kind.value, "key": job.kind.key}))
    running: Any = job.pipeline.start(trigger={"availableNow": True})
    running.awaitTermination()
    running.stop(finish_files=True)


if __name__ == "__main__":
    main()
