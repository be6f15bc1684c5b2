"""The driver of a job on a standalone cluster: generated bids → totals per bidder → Parquet on S3.

Nothing but the object store is shared: tasks make their own input, and where the store is comes in
the environment, with its credentials. It runs until a file tells it to close its files and end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tests.support.spark.pipeline_process import JOB, QUICK_JVM, QUICK_SPARK
from tests.support.spark.totals import Totals

STORE = "LAKESTATE_TEST_STORE"
SEED = 11
ROWS_PER_EPOCH = 500


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
}
ASLEEP_S = 600


class FallsAsleep(Totals):
    """The first attempt of one subtask sleeps for longer than any test, after it has seen its rows."""

    def process_batch(self, batch, ctx):
        from pyspark import TaskContext

        yield from super().process_batch(batch, ctx)
        task = TaskContext.get()
        if (ctx.epoch, task.partitionId(), task.attemptNumber()) == (2, 0, 0):
            time.sleep(ASLEEP_S)


def main() -> None:
    from pyspark.sql import SparkSession

    import lakestate as ls
    from lakestate.config import StoreConfig
    from lakestate.spark.auction_source import AuctionDataSource

    store = json.loads(os.environ.pop(STORE))
    speculates = "--speculation" in sys.argv
    builder = (
        SparkSession.builder.appName(JOB)
        .master(sys.argv[1])
        .config(map=QUICK_SPARK)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", QUICK_JVM)
        # Both workers are there before the first epoch, so that both have part in it.
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "10min")
        .config("spark.cores.max", "2")
    )
    spark = builder.config(map=SPECULATION if speculates else {}).getOrCreate()
    spark.dataSource.register(AuctionDataSource)
    options = {"seed": SEED, "rowsPerBatch": ROWS_PER_EPOCH, "columns": "bidder, price"}
    bids = spark.readStream.format("lakestate-auctions").options(**options).load()
    pipeline = ls.Pipeline(JOB, StoreConfig(f"{store['url']}/checkpoints", store["options"]), parallelism=4)
    totals = (
        pipeline.source(bids)
        .transform(lambda rows: rows.selectExpr("string(bidder) as user", "double(price) as amount"))
        .key_by("user")
        .apply("totals", FallsAsleep() if speculates else Totals())
    )
    roll = ls.Roll(bytes="20KB", interval=None)
    totals.sink("out", ls.ParquetSink(f"{store['url']}/out", options=store["options"], roll=roll))
    query, test = pipeline.start(), os.getppid()
    # Nor does it outlive the test that started it.
    while not Path(sys.argv[2]).exists() and os.getppid() == test:
        query.awaitTermination(0.1)
    query.stop(finish_files=True)


if __name__ == "__main__":
    main()
