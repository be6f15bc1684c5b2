"""The Kafka sink in a pipeline against Spark's own Kafka sink, in one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from tests.support.jars import KAFKA_BROKER, SPARK_KAFKA, jars_of, spark_jars
from tests.support.servers.kafka import KafkaBroker

import lakestate as ls
from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_least
from benchmarks.spark_jobs.epoch_times import Times, batch_times
from benchmarks.spark_jobs.epochs import ROW_GROUP_ROWS
from benchmarks.spark_jobs.local_spark import local_spark

ROWS = 250_000
PARTITIONS = 4
WARM_UP_EPOCHS, WARM_UP_ROWS = 3, 20_000
SCHEMA = "key string, value string"
SPARKS_OWN, OURS = "Spark's Kafka sink", "KafkaSink"

BENCHMARK = Benchmark(
    name="kafka",
    title="The Kafka sink",
    text=(
        f"Messages of about 100 bytes from Parquet files, one file of {ROWS:,} rows per epoch, on "
        "`local[2]`, to a topic of 4 partitions of one broker on the same machine. Spark's sink delivers at "
        "least once, ours exactly once: its messages are staged, published and produced in a transaction. In "
        "the end, a reader of committed messages finds each row once."
    ),
    contenders=(
        Contender(SPARKS_OWN, '`format("kafka")`, all defaults'),
        Contender(OURS, "in a `Pipeline`, 2 subtasks, all defaults"),
    ),
    questions=(
        Question(
            "rate",
            "Rows per second into Kafka",
            "rows/s",
            aims=(
                at_least(
                    1.0,
                    "`KafkaSink`, against Spark's Kafka sink",
                    Point(OURS),
                    Point(SPARKS_OWN),
                    why=(
                        "messages are produced after their epoch is published, which takes two fifths of it; "
                        "Spark produces while it reads. Staging them takes 7 %."
                    ),
                ),
            ),
        ),
    ),
    seconds=(40, 90),
)


def measure(run: Run) -> None:
    for group in (KAFKA_BROKER, SPARK_KAFKA):
        if not jars_of(group):
            for name in CONTENDERS:
                run.leave_out("rate", name, f"the jars of {group} are not there: run scripts/fetch-jars")
            return
    spark = local_spark(spark_jars(SPARK_KAFKA))
    rows, epochs = run.pick(whole=(ROWS, 5), quick=(50_000, 4))
    with run.folder() as folder, KafkaBroker() as broker:
        _write_input(folder / "in", epochs, rows)
        _write_input(folder / "warm-up", WARM_UP_EPOCHS, WARM_UP_ROWS)

        def deliver(name: str, source: Path, topic: str) -> Times:
            broker.create_topic(topic, PARTITIONS)
            times = CONTENDERS[name](spark, source, broker.servers, topic)
            _check(spark, source, broker.servers, topic)
            broker.delete_topic(topic)
            return times

        def timed(name: str, number: int) -> list[float]:
            place = [*CONTENDERS].index(name)
            if number == 0:
                deliver(name, folder / "warm-up", f"warm-up-{place}")
            times = deliver(name, folder / "in", f"{number}-{place}")
            return [rows / ms * 1000 for ms in times.clock_ms]

        contenders = {name: lambda number, name=name: timed(name, number) for name in CONTENDERS}
        run.compare("rate", contenders, repetitions=run.pick(whole=2, quick=1))
    spark.stop()


def _sparks_own(spark: SparkSession, source: Path, servers: str, topic: str) -> Times:
    writer = _input(spark, source).writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    checkpoint = str(source.parent / f"checkpoint-{topic}")
    return batch_times(writer.option("topic", topic).option("checkpointLocation", checkpoint))


def _pipeline(spark: SparkSession, source: Path, servers: str, topic: str) -> Times:
    times = Times()

    class Ends:
        def on_epoch(self, progress: object) -> None:
            times.epoch_ended()

    pipeline = ls.Pipeline("kafka", f"file://{source.parent}/state-{topic}", parallelism=2)
    sink = ls.KafkaSink(servers, topic, key="key", value="value")
    pipeline.source(_input(spark, source)).sink("out", sink)
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()], progress=False)
    query.awaitTermination()
    times.stop()
    query.stop()
    return times


CONTENDERS = {SPARKS_OWN: _sparks_own, OURS: _pipeline}


def _check(spark: SparkSession, source: Path, servers: str, topic: str) -> None:
    """A reader of committed messages finds those of the input, each once."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("kafka.isolation.level", "read_committed").option("subscribe", topic)
    found = reader.load().selectExpr("CAST(key AS string) AS key", "CAST(value AS string) AS value")
    given = spark.read.schema(SCHEMA).parquet(str(source))
    messages, wanted = (
        frame.selectExpr("count(*)", "sum(CAST(xxhash64(key, value) AS decimal(38)))").first()
        for frame in (found, given)
    )
    if messages != wanted:
        raise RuntimeError(f"readers find other messages: {messages}, expected {wanted}")


def _input(spark: SparkSession, source: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(source))


def _write_input(folder: Path, epochs: int, rows: int) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(epochs):
        keys = pa.array(random.integers(10_000_000, 99_999_999, rows)).cast(pa.string())
        texts = [pa.array(random.integers(10**17, 10**18, rows)).cast(pa.string()) for _ in range(5)]
        values = pc.binary_join_element_wise(*texts, ",")
        # Several row groups, so that Spark can read a large file in several tasks.
        table, path = pa.table({"key": keys, "value": values}), folder / f"{number:03}.parquet"
        pq.write_table(table, path, row_group_size=ROW_GROUP_ROWS)
