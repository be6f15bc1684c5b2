"""The Kafka sink in a pipeline against Spark's own Kafka sink, in one run.

Both read the same Parquet files, one file per epoch, on `local[2]`, and write the same messages of about 100
bytes to a topic of one broker on the same machine. Spark's sink delivers at least once, ours exactly once:
its messages are staged, published and produced in a transaction. Rounds alternate; times are medians over
epochs without the first two of a round.

    python -m benchmarks kafka
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from tests.support.jars import SPARK_KAFKA, spark_jars
from tests.support.servers.kafka import KafkaBroker

import lakestate as ls
from benchmarks.bench_sink_spark import Times, _batch_times
from benchmarks.local_spark import local_spark

EPOCHS = 6
EPOCH_ROWS = 1_000_000
ROUNDS = 2
PARTITIONS = 4
RATIO_MIN = 1.0
SCHEMA = "key string, value string"


def main() -> None:
    spark = local_spark(spark_jars(SPARK_KAFKA))
    with tempfile.TemporaryDirectory(prefix="lakestate-bench-") as name, KafkaBroker() as broker:
        folder = Path(name)
        _write_input(folder / "in")
        found: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for number in range(ROUNDS):
            for contender in sorted(CONTENDERS, reverse=number % 2 == 1):
                topic = f"{number}-{contender.split()[0].replace(chr(39), '')}"
                broker.create_topic(topic, PARTITIONS)
                times = CONTENDERS[contender](spark, folder, broker.servers, topic)
                found[contender] += times.clock_ms
                broker.delete_topic(topic)
    spark.stop()
    print(f"{EPOCH_ROWS:,} rows of 100 bytes per epoch, {ROUNDS} rounds of {EPOCHS} epochs, medians:")
    medians = {name: statistics.median(times) for name, times in found.items()}
    for name, ms in medians.items():
        print(f"  {name:<12} {ms:6.0f} ms   {EPOCH_ROWS / ms:6.0f}k rows/s")
    ratio = medians["Spark's own"] / medians["pipeline"]
    verdict = "reached" if ratio >= RATIO_MIN else "MISSED"
    print(f"  pipeline / Spark's own: {ratio:.2f} x the rows/s; at least {RATIO_MIN}: {verdict}")


def _sparks_own(spark: SparkSession, folder: Path, servers: str, topic: str) -> Times:
    writer = _input(spark, folder).writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    checkpoint = str(folder / f"checkpoint-{topic}")
    return _batch_times(writer.option("topic", topic).option("checkpointLocation", checkpoint))


def _pipeline(spark: SparkSession, folder: Path, servers: str, topic: str) -> Times:
    times = Times()

    class Ends:
        def on_epoch(self, progress: object) -> None:
            times.epoch_ended()

    pipeline = ls.Pipeline("kafka", f"file://{folder}/state-{topic}", parallelism=2)
    sink = ls.KafkaSink(servers, topic, key="key", value="value")
    pipeline.source(_input(spark, folder)).sink("out", sink)
    query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()])
    query.awaitTermination()
    times.stop()
    query.stop()
    return times


CONTENDERS = {"Spark's own": _sparks_own, "pipeline": _pipeline}


def _input(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "in"))


def _write_input(folder: Path) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(EPOCHS):
        keys = pa.array(random.integers(10_000_000, 99_999_999, EPOCH_ROWS)).cast(pa.string())
        texts = [pa.array(random.integers(10**17, 10**18, EPOCH_ROWS)).cast(pa.string()) for _ in range(5)]
        values = pc.binary_join_element_wise(*texts, ",")
        pq.write_table(pa.table({"key": keys, "value": values}), folder / f"{number:03}.parquet")


if __name__ == "__main__":
    main()
