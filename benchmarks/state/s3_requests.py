"""Running totals on one S3 server: a pipeline, and Spark's own RocksDB state through Hadoop's S3 connector.

Both read the same files, one in each epoch, have the same keys and as many partitions, and speak to the
server through a proxy that counts what arrives. Spark uploads snapshots and looks for old versions by the
clock, once a minute: its clock runs faster here in the same measure as its epochs, which stand for ones of
ten seconds.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from tests.support.jars import FOLDER, jars_of
from tests.support.repository import ROOT
from tests.support.servers.counting_proxy import CountingProxy, Kind, SeenRequest

import lakestate as ls
from benchmarks.core import Unavailable
from benchmarks.spark_jobs.epochs import ROCKS_DB, read_epochs, write_epochs
from benchmarks.spark_jobs.local_spark import local_spark
from lakestate.testing.s3_server import S3Server

PARTITIONS = (4, 16)
WARM_UP_EPOCHS = 6
EPOCHS = 12
"""In which Spark uploads a snapshot of each partition once: it does so after ten epochs or more."""
ROWS = 1_000
KEYS = 100_000
SCHEMA = "user bigint, amount double"
EPOCH_S = 4
MAINTENANCE_S = EPOCH_S * 6
"""Six epochs of ten seconds are a minute, Spark's own interval."""
EPOCHS_PER_MONTH = 30 * 24 * 3600 // 10
WRITE_PRICE, READ_PRICE = 0.005 / 1000, 0.0004 / 1000
"""Dollars for a request to S3 Standard: writes and listings, and reads. Deletions cost nothing."""
CONNECTOR = "s3"
SPARK = "groupBy on RocksDB"
SPARK_SETTINGS = (
    "changelog checkpoints, Hadoop's connector for S3, and spark-hadoop-cloud's way to write checkpoint "
    "files, without renaming"
)
FILES = "spark.sql.streaming.checkpointFileManagerClass"
STREAM_FILES = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


class Totals(ls.Operator):
    """The same totals as `groupBy("user").agg(count, sum)`."""

    input = SCHEMA
    totals = ls.KeyedTable(key="user bigint", value="n bigint, spend double")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> None:
        """Add the rows to what is known."""
        new = pa.table(batch).group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
        old = ctx.totals.get(new)
        n = pc.add(new["amount_count"], old["n"].fill_null(0))
        spend = pc.add(new["amount_sum"], old["spend"].fill_null(0.0))
        ctx.totals.put(pa.table({"user": new["user"], "n": n, "spend": spend}))


def find_connector() -> dict[str, str]:
    """The settings with which Spark opens `s3a://`. Its jars, 700 MB, are fetched if they are not there."""
    subprocess.run([ROOT / "scripts" / "fetch-jars", CONNECTOR], check=False)
    found = jars_of(CONNECTOR)
    if not found:
        why = FOLDER / f"{CONNECTOR}.missing"
        reason = why.read_text().strip() if why.exists() else "scripts/fetch-jars has not fetched it"
        raise Unavailable(f"Hadoop's connector for S3 (hadoop-aws) cannot be had: {reason}")
    # Not spark.jars, which are copied first.
    return {"spark.driver.extraClassPath": ":".join(map(str, found))}


@dataclass(frozen=True, slots=True)
class EpochCost:
    """What an epoch asked of the server, on average."""

    partitions: int
    is_spark: bool
    requests: Mapping[str, float]
    """By kind: writes, reads, lists and deletes."""
    written_bytes: float

    @classmethod
    def of(cls, partitions: int, seen: Sequence[SeenRequest], *, is_spark: bool) -> EpochCost:
        """The average of the measured epochs."""
        counts = Counter(each.kind for each in seen)
        requests = {f"{kind.value}s": counts[kind] / EPOCHS for kind in Kind}
        return cls(partitions, is_spark, requests, sum(each.written_bytes for each in seen) / EPOCHS)

    @property
    def monthly_price(self) -> float:
        """What the requests of a month cost at one epoch in 10 seconds."""
        return dollars_a_month(self.requests["writes"], self.requests["lists"], self.requests["reads"])


def dollars_a_month(writes: float, lists: float, reads: float) -> float:
    """What the requests of a month cost, from those of an epoch, at one epoch in 10 seconds."""
    return EPOCHS_PER_MONTH * ((writes + lists) * WRITE_PRICE + reads * READ_PRICE)


def measure_epochs(
    partitions: Sequence[int], connector: Mapping[str, str] | None, say: Callable[[str], None] = print
) -> Iterator[EpochCost]:
    """The costs of a pipeline at each number of partitions, and those of Spark if it has a connector."""
    with (
        TemporaryDirectory(prefix="lakestate-bench-", ignore_cleanup_errors=True) as name,
        S3Server() as server,
        CountingProxy(server.port) as proxy,
    ):
        folder = Path(name)
        write_epochs(folder / "in", WARM_UP_EPOCHS + EPOCHS + 1, _rows)
        clock = {"spark.sql.streaming.stateStore.maintenanceInterval": f"{MAINTENANCE_S}s"}
        spark = local_spark({**ROCKS_DB, **clock, **_s3a(server, proxy), **(connector or {})})
        for count in partitions:
            spark.conf.set("spark.sql.shuffle.partitions", count)
            for is_spark in (False, True) if connector is not None else (False,):
                say(f"{'Spark' if is_spark else 'a pipeline'} on S3, {count} partitions")
                run = _run_spark if is_spark else _run_pipeline
                proxy.take()
                begin_s, end_s = run(read_epochs(spark, folder / "in", SCHEMA), server, proxy, count)
                seen = [each for each in proxy.take() if begin_s <= each.at_s < end_s]
                yield EpochCost.of(count, seen, is_spark=is_spark)
        spark.stop()


def _rows(number: int) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table({"user": random.integers(0, KEYS, ROWS), "amount": random.random(ROWS)})


def _s3a(server: S3Server, proxy: CountingProxy) -> dict[str, str]:
    settings = {
        "endpoint": proxy.endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": server.credentials.access_key_id,
        "secret.key": server.credentials.secret_access_key,
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def _run_pipeline(
    frame: DataFrame, server: S3Server, proxy: CountingProxy, partitions: int
) -> tuple[float, float]:
    """When the measured epochs began and ended. A pipeline does nothing by the clock: it need not wait."""
    ends: list[float] = []

    class Ends:
        def on_epoch(self, progress: ls.EpochProgress) -> None:
            ends.append(time.time())

    config = server.store_config(f"lakestate-{partitions}", endpoint=proxy.endpoint)
    with TemporaryDirectory(prefix="lakestate-bench-") as cache:
        pipeline = ls.Pipeline("totals", ls.ParquetBackend(config, cache_dir=cache), parallelism=partitions)
        pipeline.source(frame).key_by("user").apply("totals", Totals())
        query = pipeline.start(trigger={"availableNow": True}, listeners=[Ends()], progress=False)
        query.awaitTermination()
        query.stop()
    return ends[WARM_UP_EPOCHS - 1], ends[WARM_UP_EPOCHS + EPOCHS - 1]


def _run_spark(
    frame: DataFrame, server: S3Server, proxy: CountingProxy, partitions: int
) -> tuple[float, float]:
    """When the measured epochs began and ended."""
    settings = frame.sparkSession.conf
    settings.set(FILES, STREAM_FILES)
    totals = frame.groupBy("user").agg(sf.count("*").alias("n"), sf.sum("amount").alias("spend"))
    writer = totals.writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", f"s3a://{server.bucket}/spark-{partitions}")
    query = writer.trigger(processingTime=f"{EPOCH_S} seconds").start()
    while len(query.recentProgress) <= WARM_UP_EPOCHS + EPOCHS:
        if query.awaitTermination(timeout=0.2):
            raise RuntimeError("the query has ended")
    starts = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in query.recentProgress]
    query.stop()
    # It refuses a local folder, which a pipeline gives to Spark.
    settings.unset(FILES)
    return starts[WARM_UP_EPOCHS], starts[WARM_UP_EPOCHS + EPOCHS]
