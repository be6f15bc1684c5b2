"""The driver of a job on a standalone cluster: generated bids → totals per bidder → Parquet on S3.

Nothing but the object store is shared: tasks make their own input, and where the store is comes in
the environment, with its credentials.
"""

from __future__ import annotations

import json
import os
import sys

from tests.support.pipeline_process import JOB, QUICK_JVM
from tests.support.totals import Totals

STORE = "LAKESTATE_TEST_STORE"
SEED = 11
ROWS = 12_000
ROWS_PER_EPOCH = 500


def main() -> None:
    from pyspark.sql import SparkSession

    import lakestate as ls
    from lakestate.config import StoreConfig
    from lakestate.spark.auction_source import AuctionDataSource

    store = json.loads(os.environ.pop(STORE))
    spark = (
        SparkSession.builder.appName(JOB)
        .master(sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", QUICK_JVM)
        # Both workers are there before the first epoch, so that both have part in it.
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.cores.max", "2")
        .getOrCreate()
    )
    spark.dataSource.register(AuctionDataSource)
    options = {"seed": SEED, "rows": ROWS, "rowsPerBatch": ROWS_PER_EPOCH}
    bids = spark.readStream.format("lakestate-auctions").options(**options).load()
    pipeline = ls.Pipeline(JOB, StoreConfig(f"{store['url']}/checkpoints", store["options"]), parallelism=4)
    totals = (
        pipeline.source(bids)
        .transform(lambda rows: rows.selectExpr("string(bidder) as user", "double(price) as amount"))
        .key_by("user")
        .apply("totals", Totals())
    )
    roll = ls.Roll(bytes="20KB", interval=None)
    totals.sink("out", ls.ParquetSink(f"{store['url']}/out", options=store["options"], roll=roll))
    query = pipeline.start(trigger={"availableNow": True})
    query.awaitTermination()
    query.stop(drain=True)


if __name__ == "__main__":
    main()
