"""Running a query of Nexmark, with things that go wrong on the way.

`run_interrupted` and `run_with_losses` use the session that all tests share; `run_killed` starts drivers of
its own and kills one. As a module it is such a driver.
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

from examples.nexmark.job import Feed, QueryJob, query_job
from tests.support.nexmark.output import EACH_EPOCH, Rows, read_written, result_of
from tests.support.spark.pipeline_process import DEADLINE_S, Session, local_spark, own_python_workers
from tests.support.spark.pipelines import run_available, wait_for

import lakestate as ls
from lakestate.row_kind import RowKind, StreamKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "kind.json"
"""The file in which a driver says what the rows of its query mean."""
DRAINED = ("q12",)
"""Queries by processing time: their windows are open when the events end, and are closed by draining."""
PACE = "500 milliseconds"
"""Slow enough that the test sees an epoch begin before all are over."""


def run_at_once(spark: SparkSession, query: str, feed: Feed, folder: Path) -> Rows:
    """Read all events without any disturbance."""
    return _finish(query_job(query, spark, feed, folder, **_host(folder, 1)), query, folder)


def run_interrupted(spark: SparkSession, query: str, feed: Feed, folder: Path) -> Rows:
    """Cancel an epoch, and continue on another host with more subtasks."""
    _cancel_an_epoch(query_job(query, spark, feed, folder, **_host(folder, 1)), query, feed, folder)
    return _finish(query_job(query, spark, feed, folder, **_host(folder, 2)), query, folder)


def run_with_losses(spark: SparkSession, query: str, feed: Feed, folder: Path) -> Rows:
    """The same, and kill a Python worker on the other host.

    If it is the one in which a source finds its offsets, the query fails, and is started again.
    """
    reached = _cancel_an_epoch(query_job(query, spark, feed, folder, **_host(folder, 1)), query, feed, folder)
    job = query_job(query, spark, feed, folder, **_host(folder, 2))
    running = job.pipeline.start(trigger={"availableNow": True})
    wait_for(lambda: newest_epoch(folder, query) > reached, running, DEADLINE_S)
    with suppress(ProcessLookupError):
        os.kill(own_python_workers()[-1], signal.SIGKILL)
    with suppress(Exception):
        running.awaitTermination(DEADLINE_S)
    running.stop()
    return _finish(query_job(query, spark, feed, folder, **_host(folder, 2)), query, folder)


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


def _host(folder: Path, number: int) -> dict[str, Any]:
    """Where a query runs: each host has a cache of its own, and the second takes more subtasks."""
    return {"cache_dir": folder / f"cache-{number}", "parallelism": 1 + number, "roll": EACH_EPOCH}


def newest_epoch(folder: Path, query: str) -> int:
    """The newest published epoch; 0 before the first."""
    records = (folder / "checkpoints" / query / "epochs").glob("*.json")
    return max((int(record.stem) for record in records), default=0)


def _is_in_an_epoch(folder: Path, query: str, reached: int) -> bool:
    """Whether an epoch is published, and something of the next one is written, or it is published too."""
    newest = newest_epoch(folder, query)
    begun = folder / "checkpoints" / query / "checkpoints" / str(newest + 1)
    return newest > reached or (newest == reached and begun.exists())


def _cancel_an_epoch(job: QueryJob, query: str, feed: Feed, folder: Path) -> int:
    """Start a query and cancel one of its epochs. Returns the newest that is published."""
    running = job.pipeline.start(trigger={"processingTime": PACE})
    wait_for(lambda: _is_in_an_epoch(folder, query, 1), running, DEADLINE_S)
    with suppress(ls.StopTimeoutError):
        running.stop(timeout=0)
    reached = newest_epoch(folder, query)
    assert reached < feed.events // feed.events_per_epoch, "it was done before it was interrupted"
    return reached


def _finish(job: QueryJob, query: str, folder: Path) -> Rows:
    run_available(job.pipeline, finish_files=True, drain=query in DRAINED)
    return result_of(read_written(folder / "out"), job.kind)


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
    running.stop(finish_files=True, drain=query in DRAINED)


if __name__ == "__main__":
    main()
