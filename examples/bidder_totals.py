"""Running totals per bidder over a stream of auction bids: a complete pipeline to copy from.

Run it with `.venv/bin/python examples/bidder_totals.py /tmp/bidder-totals`. Kill it at any moment and run
it again: it continues after its last published epoch, and no bid is lost or counted twice.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import lakestate as ls
from lakestate.spark.auction_source import AuctionDataSource


class BidderTotals(ls.Operator):
    """Counts the bids of each bidder and sums their prices. Yields the totals that changed."""

    input = "bidder bigint, price bigint"
    output = "bidder bigint, bids bigint, cents bigint"
    totals = ls.KeyedTable(key="bidder bigint", value="bids bigint, cents bigint")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.Table]:
        """Add a batch of bids to the totals, whole columns at a time."""
        new = pa.table(batch).group_by("bidder").aggregate([("price", "count"), ("price", "sum")])
        old = ctx.totals.get(new)  # one row per row of `new`; null if a bidder is new
        rows = pa.table(
            {
                "bidder": new["bidder"],
                "bids": pc.add(new["price_count"], old["bids"].fill_null(0)),
                "cents": pc.add(new["price_sum"], old["cents"].fill_null(0)),
            }
        )
        ctx.totals.put(rows)
        yield rows


def pipeline(bids: DataFrame, folder: Path) -> ls.Pipeline:
    """Bids → totals per bidder → Parquet files; state and output below one folder."""
    job = ls.Pipeline("bidder-totals", f"file://{folder}/checkpoints", parallelism=2)
    (
        job.source(bids, name="bids", event_time="ts", delay="2 seconds")
        .key_by("bidder")
        .apply("totals", BidderTotals())
        .sink("out", ls.ParquetSink(f"file://{folder}/out", roll=ls.Roll(bytes="200kB")))
    )
    return job


def bid_stream(spark: SparkSession, seed: int, rows: int, rows_per_batch: int) -> DataFrame:
    """A stream of generated bids. Any other streaming DataFrame would do."""
    spark.dataSource.register(AuctionDataSource)
    options = {"seed": seed, "rows": rows, "rowsPerBatch": rows_per_batch, "columns": "bidder, price, ts"}
    return spark.readStream.format("lakestate-auctions").options(**options).load()


def local_spark() -> SparkSession:
    """A Spark session in this process, on two cores, with little log output."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Python workers need the packages of this interpreter
    # The JVM's second compiler pays off after minutes; this run is shorter.
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    return (
        SparkSession.builder.appName("bidder totals")
        .master("local[2]")
        .config("spark.python.daemon.module", "lakestate.spark.python_daemon")  # workers start at once
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", f"{quick} {logging}")
        .getOrCreate()
    )


def main() -> None:
    """Run until all bids are read, then finish the open files."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path, help="folder for state and output")
    arguments.add_argument("--seed", type=int, default=7)
    arguments.add_argument("--rows", type=int, default=600_000)
    arguments.add_argument("--rows-per-batch", type=int, default=50_000)
    given = arguments.parse_args()
    bids = bid_stream(local_spark(), given.seed, given.rows, given.rows_per_batch)
    query = pipeline(bids, given.folder.absolute()).start(
        trigger={"availableNow": True}, listeners=[ls.ProgressLine(sys.stdout)]
    )
    query.awaitTermination()
    query.stop(finish_files=True)


if __name__ == "__main__":
    main()
