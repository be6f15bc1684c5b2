"""The Kafka sink in pipelines on Spark: the page's program twice, and workers that are killed."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.repository import ROOT
from tests.support.servers.kafka import KafkaBroker
from tests.support.sinks.kafka_reader import committed_messages, committed_values

import lakestate as ls


@pytest.mark.usefixtures("spark")
def test_the_program_of_the_page_runs_twice(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    kafka_broker.create_topic("totals")
    page = (ROOT / "docs" / "sinks" / "kafka.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program = program.replace("broker:9092", kafka_broker.servers).replace("/data", str(tmp_path))
    for _ in range(2):
        exec(program, {"__name__": "__main__"})
        found = committed_messages(kafka_broker.servers, "totals")
        assert sorted((each.key, each.value) for each in found) == [
            (b"ada", b'{"user":"ada","n":2,"spend":29}'),
            (b"bob", b'{"user":"bob","n":1,"spend":5}'),
        ]


class KillsItsWorker(ls.Operator):
    """Passes rows on. Its process is killed once, after it has staged some of them."""

    output = "id bigint"

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.RecordBatch]:
        yield batch.select(["id"])
        if 17 in batch.column("id").to_pylist() and not Path(self.flag).exists():
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.full
def test_a_worker_that_is_killed_leaves_nothing_in_the_topic(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, partitions=2)
    spark.range(40).write.json(str(tmp_path / "in"))
    rows = spark.readStream.schema("id bigint").json(str(tmp_path / "in"))
    pipeline = ls.Pipeline("killed", f"file://{tmp_path}/state", parallelism=2)
    killing = KillsItsWorker(str(tmp_path / "killed"))
    stream = pipeline.source(rows, name="rows").key_by("id").apply("kill", killing)
    stream.sink("out", ls.KafkaSink(kafka_broker.servers, topic, key=["id"]))
    with pipeline.run(trigger={"availableNow": True}) as query:
        query.awaitTermination()
    assert (tmp_path / "killed").exists()
    assert committed_values(kafka_broker.servers, topic) == sorted(f'{{"id":{each}}}' for each in range(40))
