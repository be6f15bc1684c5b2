"""Who takes part, and how each runs a query: once for its rows, or for the time that it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from examples.nexmark.job import Streams, query_job
from pyspark.sql import DataFrame, SparkSession
from tests.support.nexmark.output import EACH_EPOCH, Rows, Written, read_written, result_of

import lakestate as ls
from benchmarks.nexmark import spark_queries
from benchmarks.nexmark.blackhole import Blackhole
from benchmarks.nexmark.events import TASKS, Events
from benchmarks.nexmark.exactness import Answers, Windows, count_rows, read_changes
from benchmarks.nexmark.flink import CANNOT as FLINK_CANNOT
from benchmarks.nexmark.flink import UNCHECKED as FLINK_UNCHECKED
from benchmarks.nexmark.flink import Flink
from benchmarks.nexmark.usage import Usage, measured
from lakestate.row_kind import RowKind, StreamKind
from lakestate.testing.auctions import AuctionKind

FILES = "q10"
"""The query that asks for files. The rows of all others go nowhere."""
DRAINED = "q12"
"""The query by processing time: draining closes the windows that are open at the end."""
CODEC = "snappy"


class Contestant(ABC):
    """One who runs queries."""

    name: str

    @abstractmethod
    def refusal(self, query: str) -> str | None:
        """Why it cannot run a query; None if it can."""

    @abstractmethod
    def difference(self, query: str, events: Events, answers: Answers, folder: Path) -> str | None:
        """Run a query and compare its rows with the answer; None if they are the same."""

    @abstractmethod
    def run(self, query: str, events: Events, folder: Path) -> Usage:
        """Run a query to the end of the events. Its rows are computed and thrown away."""


@dataclass(frozen=True)
class FileFeed:
    """Events in files, as the source of `examples.nexmark`."""

    events: Events

    def read(self, spark: SparkSession, kind: AuctionKind) -> DataFrame:
        return spark_queries.read_stream(spark, self.events, kind)


@dataclass
class Lakestate(Contestant):
    """The queries of `examples.nexmark`."""

    spark: SparkSession
    flink: Flink | None
    name = "Lakestate"

    def refusal(self, query: str) -> str | None:
        return None

    def difference(self, query: str, events: Events, answers: Answers, folder: Path) -> str | None:
        job = query_job(query, self.spark, FileFeed(events), folder, roll=EACH_EPOCH, parallelism=TASKS)
        _finish(job.pipeline, finish_files=True, drain=query == DRAINED)
        return answers.difference(query, result_of(read_written(folder / "out"), job.kind))

    def run(self, query: str, events: Events, folder: Path) -> Usage:
        with measured(without=_pid(self.flink)) as usage:
            module = import_module(f"examples.nexmark.{query}")
            pipeline = ls.Pipeline(query, f"file://{folder}/checkpoints", parallelism=TASKS)
            rows = module.build(Streams(pipeline, self.spark, FileFeed(events)))
            if query == FILES:
                target = ls.ParquetSink(
                    f"file://{folder}/out", partition_by=module.PARTITION_BY, compression=CODEC
                )
                rows.sink("out", target)
            else:
                rows.sink("out", Blackhole())
            _finish(pipeline, finish_files=query == FILES)
        return usage


@dataclass
class SparkStreaming(Contestant):
    """Spark's own stateful operators."""

    spark: SparkSession
    flink: Flink | None
    name = "Spark"

    def refusal(self, query: str) -> str | None:
        return spark_queries.CANNOT.get(query)

    def difference(self, query: str, events: Events, answers: Answers, folder: Path) -> str | None:
        asked = spark_queries.QUERIES[query]
        written: list[Written] = []

        def collect(batch: DataFrame, number: int) -> None:
            written.extend(Written(number, row) for row in batch.toArrow().to_pylist())

        rows = asked.build(spark_queries.SparkStreams(self.spark, events))
        self._finish(rows.writeStream.foreachBatch(collect).outputMode(asked.mode), folder)
        kind = StreamKind(RowKind.UPSERT if asked.key else RowKind.APPEND, asked.key)
        return answers.difference(query, result_of(written, kind), asked.windows)

    def run(self, query: str, events: Events, folder: Path) -> Usage:
        with measured(without=_pid(self.flink)) as usage:
            asked = spark_queries.QUERIES[query]
            rows = asked.build(spark_queries.SparkStreams(self.spark, events))
            writer = rows.writeStream.outputMode(asked.mode)
            if query == FILES:
                files = writer.format("parquet").option("compression", CODEC).option("path", f"{folder}/out")
                writer = files.partitionBy("day", "minute")
            else:
                writer = writer.format("noop")
            self._finish(writer, folder)
        return usage

    def _finish(self, writer: Any, folder: Path) -> None:
        started = writer.option("checkpointLocation", f"{folder}/checkpoints").trigger(availableNow=True)
        started.start().awaitTermination()


@dataclass
class FlinkSql(Contestant):
    """Flink SQL through PyFlink."""

    flink: Flink
    name = "Flink"

    def refusal(self, query: str) -> str | None:
        return FLINK_CANNOT.get(query)

    def difference(self, query: str, events: Events, answers: Answers, folder: Path) -> str | None:
        rows = folder / "rows"
        folder.mkdir(parents=True)
        self.flink.run(query, events, folder, rows)
        if query in FLINK_UNCHECKED:
            return None
        found = _read_files(folder / "out") if query == FILES else None
        if found is None:
            found = read_changes(rows, answers.of(query, Windows.CLOSE).schema)
        return answers.difference(query, found, Windows.CLOSE)

    def run(self, query: str, events: Events, folder: Path) -> Usage:
        folder.mkdir(parents=True)
        with measured(self.flink.pid) as usage:
            self.flink.run(query, events, folder)
        return usage


def _read_files(folder: Path) -> Rows:
    """The rows in files that Flink has written. Their names have no ending, their times no zone: UTC."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("part-*")):
        table = pq.ParquetFile(path).read()
        times = table["ts"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        table = table.set_column(table.schema.get_field_index("ts"), "ts", times)
        folders = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
        rows += [row | folders for row in table.to_pylist()]
    return count_rows(rows)


def _pid(flink: Flink | None) -> int | None:
    return None if flink is None else flink.pid


def _finish(pipeline: ls.Pipeline, **how: bool) -> None:
    query = pipeline.start(trigger={"availableNow": True})
    query.awaitTermination()
    query.stop(**how)
