"""Pipelines over a Kafka broker: exact through restarts, new partitions, a killed broker, lost records."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.support.jars import SPARK_KAFKA, require_jars
from tests.support.repository import DOCS, ROOT
from tests.support.servers.kafka import KafkaBroker
from tests.support.spark.pipelines import read_output, run_available, wait_for

import lakestate as ls
from lakestate.spark import kafka_source

# The jars that can be had may be of an earlier minor version than Spark.
pytestmark = pytest.mark.filterwarnings("ignore:the connector for Kafka is built for another Spark")


@pytest.fixture(autouse=True)
def connector() -> None:
    require_jars(SPARK_KAFKA)


class Copy:
    """A job that copies the values of topics."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, folder: Path, topics: str) -> None:
        self.spark, self.broker, self.folder, self.topics = spark, broker, folder, topics
        self.backend = ls.ParquetBackend(f"file://{folder}/checkpoints", cache_dir=folder / "cache")

    def pipeline(
        self, transform: Callable[[DataFrame], DataFrame] = lambda rows: rows, **options: str
    ) -> ls.Pipeline:
        reader = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.servers)
            .option("subscribe", self.topics)
            .option("startingOffsets", "earliest")
            .options(**options)
        )
        pipeline = ls.Pipeline("copy", self.backend, parallelism=2)
        value = F.col("value").cast("string").alias("value")
        rows = pipeline.source(reader, name="records").transform(transform)
        rows.transform(lambda frame: frame.select("topic", value)).sink(
            "out", ls.ParquetSink(f"file://{self.folder}/out")
        )
        return pipeline

    def run(self, **options: str) -> None:
        # Every start makes a new directory for Spark: nothing but the manifest says where to continue.
        run_available(self.pipeline(**options), finish_files=True, spark_checkpoint=self.folder / "spark")
        assert list((self.folder / "spark").iterdir()) == []

    @property
    def output(self) -> list[tuple[str, str]]:
        return sorted((row["topic"], row["value"]) for row in read_output(self.folder / "out"))

    @property
    def offsets(self) -> Any:
        return json.loads(self.backend.load_checkpoint_metadata("copy").sources[0].offsets)


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_several_topics_are_read_once_through_restarts_and_new_partitions(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("left", 2)
    kafka_broker.create_topic("right")
    job = Copy(spark, kafka_broker, tmp_path, "left,right")
    kafka_broker.send("left", numbers(0, 10), partition=1)
    job.run()
    kafka_broker.send("right", numbers(10, 15))
    kafka_broker.add_partitions("left", 3)
    kafka_broker.send("left", numbers(15, 20), partition=2)
    job.run()
    assert job.offsets == {"left": {"0": 0, "1": 10, "2": 5}, "right": {"0": 5}}
    left = [("left", number) for number in numbers(0, 10) + numbers(15, 20)]
    assert job.output == sorted(left + [("right", number) for number in numbers(10, 15)])
    assert ls.verify(job.backend, "copy").is_clean


def test_a_running_job_survives_a_broker_killed_in_mid_epoch_and_reads_partitions_that_appear(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("growing")
    kafka_broker.send("growing", numbers(0, 40))
    job = Copy(spark, kafka_broker, tmp_path, "growing")
    has_started, restarts = threading.Event(), []

    def kill_once(rows: DataFrame) -> DataFrame:
        """When an epoch calls this, its offsets are decided, and none of its records is read."""
        if has_started.is_set() and not restarts:
            kafka_broker.kill()
            restarts.append(threading.Thread(target=kafka_broker.start))
            restarts[0].start()
        return rows

    pipeline = job.pipeline(kill_once, maxOffsetsPerTrigger="10")
    query = pipeline.start(spark_checkpoint=tmp_path / "spark")
    has_started.set()
    try:
        wait_for(lambda: query.lastProgress is not None and job.offsets == {"growing": {"0": 40}}, query)
        restarts[0].join()
        kafka_broker.add_partitions("growing", 2)
        kafka_broker.send("growing", numbers(40, 50), partition=1)
        wait_for(lambda: job.offsets == {"growing": {"0": 40, "1": 10}}, query)
    finally:
        query.stop(finish_files=query.exception() is None)
    assert job.output == sorted(("growing", number) for number in numbers(0, 50))


def test_records_that_retention_deleted_stop_the_job_until_their_loss_is_accepted(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("ageing")
    kafka_broker.send("ageing", numbers(0, 5))
    job = Copy(spark, kafka_broker, tmp_path, "ageing")
    job.run()
    kafka_broker.send("ageing", numbers(5, 12))
    kafka_broker.delete_records("ageing", 0, before=8)
    before = job.backend.load_checkpoint_metadata("copy").epoch
    with pytest.raises(ls.NotFoundError, match="no longer has records that the job has not read"):
        job.run()
    assert job.backend.load_checkpoint_metadata("copy").epoch == before
    job.run(failOnDataLoss="false")
    assert job.output == sorted(("ageing", number) for number in numbers(0, 5) + numbers(8, 12))


@pytest.mark.full
def test_a_topic_that_is_added_is_read_from_its_beginning_and_one_left_out_is_missed(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    for topic in ("first", "second"):
        kafka_broker.create_topic(topic)
        kafka_broker.send(topic, numbers(0, 3))
    job = Copy(spark, kafka_broker, tmp_path, "first")
    job.run()
    job.topics = "second"
    with pytest.raises(ls.NotFoundError, match="no longer has records that the job has not read"):
        job.run()
    job.topics = "first,second"
    job.run(startingOffsets="latest")
    assert job.output == [(topic, number) for topic in ("first", "second") for number in numbers(0, 3)]


def test_a_topic_that_is_not_there_is_named_before_the_job_is_claimed(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("there")
    job = Copy(spark, kafka_broker, tmp_path, "there,oders")
    named = f"source records, Kafka at {kafka_broker.servers}, subscribe there,oders; found no topic oders;"
    with pytest.raises(ls.NotFoundError, match=named):
        job.pipeline().start()
    assert [problem.found for problem in job.pipeline().dry_run().problems] == ["no topic oders"]
    assert not (tmp_path / "checkpoints").exists()


def test_brokers_that_do_not_answer_are_named_before_the_job_is_claimed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "ANSWER_S", 2)
    nobody: Any = SimpleNamespace(servers="127.0.0.1:1")
    job = Copy(spark, nobody, tmp_path, "orders")
    with pytest.raises(ls.StorageUnavailableError, match=r"Kafka at 127\.0\.0\.1:1, subscribe orders"):
        job.pipeline(**{"kafka.ssl.key.password": "secret"}).start()
    assert not (tmp_path / "checkpoints").exists()


MISSING = """
import lakestate as ls
from pyspark.sql import SparkSession
from tests.support.spark.pipeline_process import QUICK_SPARK

settings = QUICK_SPARK | {{"spark.jars": {jars!r}}}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "x:1").option("subscribe", "t")
try:
    ls.Pipeline("job", {url!r}).source(reader)
except ls.InvalidInputError as refused:
    print(refused)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("pattern", "summary"),
    [
        ("none", "Spark has no connector for Kafka"),
        ("spark-sql-kafka*", "the connector for Kafka does not fit"),
    ],
    ids=["no connector", "the connector alone"],
)
def test_a_spark_without_what_kafka_needs_says_which_package_to_use(
    pattern: str, summary: str, tmp_path: Path
) -> None:
    jars = ",".join(str(jar) for jar in require_jars(SPARK_KAFKA) if jar.match(pattern))
    program = MISSING.format(jars=jars, url=f"file://{tmp_path}")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120, cwd=ROOT
    )
    assert done.stdout.startswith(summary)
    assert f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__} " in done.stdout


def long_zigzag(number: int) -> bytes:
    """A long as Avro writes it."""
    rest, encoded = number << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_the_page_on_kafka_runs_twice_and_each_record_counts_once(
    kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    page = (DOCS / "kafka.md").read_text().replace("file:///data", f"file://{tmp_path}")
    blocks = re.findall(r"```python\n(.*?)```", page.replace("broker:9092", kafka_broker.servers), re.DOTALL)
    for topic in ("orders", "returns", "payments"):
        kafka_broker.create_topic(topic, 2)
    for _ in range(2):
        kafka_broker.send(
            "orders", ['{"user": "ada", "amount": 2.5}', "not JSON"], headers=[("source", b"web")]
        )
        kafka_broker.send("returns", ["…"], headers=[("source", b"shop")])
        kafka_broker.send("payments", [long_zigzag(3) + b"ada" + long_zigzag(1999)])
        names: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks:
            exec(block, names)
    totals = [(row["user"], row["n"], row["spend"]) for row in read_output(tmp_path / "out")]
    assert max(total for total in totals if total[0]) == ("ada", 2, 5.0)
    sources = Counter((row["topic"], row["source"]) for row in read_output(tmp_path / "records"))
    assert sources == {("orders", "web"): 4, ("returns", "shop"): 2}
    assert read_output(tmp_path / "payments") == [{"user": "ada", "cents": 1999}] * 2
    assert read_output(tmp_path / "good") == [{"user": "ada", "amount": 2.5}] * 2
    assert [row["value"] for row in read_output(tmp_path / "bad")] == [b"not JSON"] * 2
