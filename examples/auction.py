"""An auction as a stream: a window, a join and a top-N in one pipeline, each in one line.

Run it with `.venv/bin/python examples/auction.py /tmp/auction`. Kill it at any moment and run it again: it
continues after its last published epoch, and no row is lost or counted twice.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import lakestate as ls
from bidder_totals import local_spark
from lakestate.spark.auction_source import AuctionDataSource
from lakestate.testing.auctions import AuctionKind

SEED = 7
EVERY = "1 ms"


def pipeline(bids: DataFrame, auctions: DataFrame, folder: Path) -> ls.Pipeline:
    """Activity of auctions by ten seconds, and the three best bids of every auction while it was open."""
    job = ls.Pipeline("auction", f"file://{folder}/checkpoints", parallelism=2)
    bid = job.source(bids, name="bids", event_time="ts", delay="2 seconds")
    auction = job.source(auctions, name="auctions", event_time="ts", delay="2 seconds")

    activity = bid.key_by("auction").window(ls.Tumbling("10 seconds"))
    activity.aggregate("activity", bids=ls.count(), highest=ls.max("price")).sink(
        "windows", ls.ParquetSink(f"file://{folder}/windows")
    )
    items = auction.select("id", "item", "expires", "ts").key_by("id")
    offers = bid.select("auction", "bidder", "price", "ts").key_by("auction")
    valid = items.join(
        "offers", offers, within=("0 seconds", "20 seconds"), prefix=("opened_", "bid_")
    ).where("bid_ts <= expires")
    best = valid.key_by("id").top("best", n=3, by="price desc, bid_ts")
    best.select("id", "rank", "item", "bidder", "price", "bid_ts").as_log().sink(
        "best-bids", ls.ParquetSink(f"file://{folder}/best")
    )
    return job


def event_stream(spark: SparkSession, kind: AuctionKind, events: int, events_per_batch: int) -> DataFrame:
    """The rows of a kind among the generated events. Any other streaming DataFrame would do."""
    spark.dataSource.register(AuctionDataSource)
    options = {
        "kind": kind.value,
        "rows": kind.rows_in(events),
        "rowsPerBatch": kind.rows_in(events_per_batch),
        "every": EVERY,
        "seed": SEED,
    }
    return spark.readStream.format("lakestate-auctions").options(**options).load()


def main() -> None:
    """Run until all events are read. The stream has then ended: what is open comes out."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path, help="folder for state and output")
    arguments.add_argument("--events", type=int, default=250_000)
    arguments.add_argument("--events-per-batch", type=int, default=25_000)
    given = arguments.parse_args()
    spark = local_spark()
    kinds = (AuctionKind.BIDS, AuctionKind.AUCTIONS)
    streams = [event_stream(spark, kind, given.events, given.events_per_batch) for kind in kinds]
    query = pipeline(*streams, given.folder.absolute()).start(
        trigger={"availableNow": True}, listeners=[ls.ProgressLine(sys.stdout)]
    )
    query.awaitTermination()
    query.stop(drain=True)


if __name__ == "__main__":
    main()
