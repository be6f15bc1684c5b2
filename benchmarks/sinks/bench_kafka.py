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
from benchmarks.spark_jobs.local_spark import local_spark

ROWS = 500_000
PARTITIONS = 4
SCHEMA = "key string, value string"
SPARKS_OWN, OURS = "Spark's Kafka sink", "KafkaSink"

BENCHMARK = Benchmark(
    name="kafka",
    title="The Kafka sink",
    text=(
        "Messages of about 100 bytes from Parquet files, one file of 500k rows per epoch, on `local[2]`, to "
        "a topic of 4 partitions of one broker on the same machine. Spark's sink delivers at least once, "
        "ours exactly once: its messages are staged, published and produced in a transaction."
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
                    why="messages are staged in the job's store before they are produced, exactly once.",
                ),
            ),
        ),
    ),
    seconds=(40, 70),
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

        def deliver(name: str, number: int) -> list[float]:
            topic = f"{number}-{[*CONTENDERS].index(name)}"
            broker.create_topic(topic, PARTITIONS)
            times = CONTENDERS[name](spark, folder, broker.servers, topic)
            broker.delete_topic(topic)
            return [rows / ms * 1000 for ms in times.clock_ms]

        contenders = {name: lambda number, name=name: deliver(name, number) for name in CONTENDERS}
        run.compare("rate", contenders, repetitions=run.pick(whole=2, quick=1))
    spark.stop()


def _sparks_own(spark: SparkSession, folder: Path, servers: str, topic: str) -> Times:
    writer = _input(spark, folder).writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    checkpoint = str(folder / f"checkpoint-{topic}")
    return batch_times(writer.option("topic", topic).option("checkpointLocation", checkpoint))


def _pipeline(spark: SparkSession, folder: Path, servers: str, topic: str) -> Times:
    times = Times()

    class Ends:
        def on_epoch(self, progress: object) -> None:
            times.epoch_ended()

    pipeline = ls.Pipeline("kafka", f"file://{folder}/state-{topic}", parallelism=2)
    sink = ls.KafkaSink(servers, topic, key="key", value="value")
    pipeline.source(_input(spark, folder)).sink("out", sink)
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()], progress=False)
    query.awaitTermination()
    times.stop()
    query.stop()
    return times


CONTENDERS = {SPARKS_OWN: _sparks_own, OURS: _pipeline}


def _input(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "in"))


def _write_input(folder: Path, epochs: int, rows: int) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(epochs):
        keys = pa.array(random.integers(10_000_000, 99_999_999, rows)).cast(pa.string())
        texts = [pa.array(random.integers(10**17, 10**18, rows)).cast(pa.string()) for _ in range(5)]
        values = pc.binary_join_element_wise(*texts, ",")
        pq.write_table(pa.table({"key": keys, "value": values}), folder / f"{number:03}.parquet")
