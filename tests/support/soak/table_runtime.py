"""Spark with the runtime of Iceberg or Delta in a process of its own, to which statements are sent.

As a script it is that process: a request for each line of standard input, an answer for each line of
standard output. It runs in an environment of another version of Spark, so it imports nothing else of this
repository.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENVIRONMENT = Path(__file__).parents[3] / ".venv-matrix" / "4.1"
CATALOG = "lakestate"
ANSWER_S = 300
SQL, FILES = "sql", "files"


class RefusedError(Exception):
    """Spark did not carry out a statement."""


class TableRuntime:
    """One Spark session. A statement runs from `begin` until `is_done`, beside whatever the test does."""

    def __init__(self, python: Path, jars: list[Path], settings: dict[str, str], log: Path) -> None:
        self.log = log
        given = settings | {"spark.jars": ",".join(map(str, jars))}
        command = [python, __file__, json.dumps(given)]
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=os.environ | {"PYSPARK_PYTHON": str(python)},
            )

    def begin(self, statement: str, kind: str = SQL) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([kind, statement]).encode() + b"\n")
        self.process.stdin.flush()

    def is_done(self, wait_s: float = 0) -> bool:
        return bool(select.select([self.process.stdout], [], [], wait_s)[0])

    def result(self) -> Any:
        """What the statement returned. Raises `RefusedError` if it failed."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline() if self.is_done(ANSWER_S) else b""
        if not line:
            raise AssertionError(f"no answer from Spark: {self.log.read_text(errors='replace')[-4000:]}")
        result, failure = json.loads(line)
        if failure is not None:
            raise RefusedError(failure)
        return result

    def sql(self, statement: str) -> list[list[Any]]:
        self.begin(statement)
        rows: list[list[Any]] = self.result()
        return rows

    def files_read(self, query: str) -> int:
        """How many data files the scan of a query plans to read."""
        self.begin(query, FILES)
        return int(self.result())

    def close(self) -> None:
        """End the process and its JVM, which reads from it until it ends."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(60)
            finally:
                self.process.kill()


@contextmanager
def open_runtime(kind: str, settings: dict[str, str], log: Path) -> Iterator[TableRuntime]:
    """A session with the jars of a group, `iceberg` or `delta`. The test is skipped if they are not there."""
    import pytest

    jars = sorted((ENVIRONMENT / "jars" / kind).glob("*.jar"))
    if not jars:
        pytest.skip(f"the jars of {kind} for Spark 4.1 are not there: run scripts/tables-env")
    runtime = TableRuntime(ENVIRONMENT / "bin" / "python", jars, settings, log)
    try:
        yield runtime
    finally:
        runtime.close()


def iceberg_settings(warehouse: Path) -> dict[str, str]:
    """The embedded catalog: Iceberg's JDBC catalog and pyiceberg's SQL catalog share tables."""
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "jdbc",
        f"spark.sql.catalog.{CATALOG}.uri": f"jdbc:sqlite:{warehouse}/catalog.db?busy_timeout=20000",
        f"spark.sql.catalog.{CATALOG}.jdbc.schema-version": "V1",
        f"spark.sql.catalog.{CATALOG}.warehouse": f"file://{warehouse}",
        f"spark.sql.catalog.{CATALOG}.cache-enabled": "false",
    }


def delta_settings() -> dict[str, str]:
    """Tables by their paths."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # It would read the log in 50 tasks.
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def _open_session(given: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    settings = given | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _answer(spark: Any, kind: str, statement: str) -> Any:
    frame = spark.sql(statement)
    rows = frame.collect()
    if kind == SQL:
        return [list(row) for row in rows]
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    metrics = scan.metrics()
    # Iceberg's name, and that of Spark's own scans, which Delta uses.
    name = "resultDataFiles" if metrics.contains("resultDataFiles") else "numFiles"
    return metrics.apply(name).value()


def _serve(settings: str) -> None:
    # What the JVM prints must not end up between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = _open_session(json.loads(settings))
    for line in sys.stdin:
        try:
            answer = [_answer(spark, *json.loads(line)), None]
        except Exception as failure:
            answer = [None, str(failure)[:500]]
        print(json.dumps(answer, default=str), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
