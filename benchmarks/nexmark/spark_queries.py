"""The queries of Nexmark with the operators of Structured Streaming, and why some cannot be asked so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from examples.nexmark.expressions import DAY, RANKS
from examples.nexmark.q21 import CHANNEL_ID
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.nexmark.events import TASKS, Events
from benchmarks.nexmark.exactness import Windows
from lakestate.testing.auctions import AuctionKind

BID = ("auction", "bidder", "price", "ts", "extra")

NO_SECOND_AGGREGATE = (
    "only append mode allows a stateful operator after a join, and there an aggregate must be over windows "
    "of event time"
)
NO_DISTINCT = "distinct aggregates are not supported on streams"
CANNOT = {
    "q4": f"a maximum per auction, then a mean over maxima that change: {NO_SECOND_AGGREGATE}",
    "q6": f"the last ten auctions of a seller, then a mean over them: {NO_SECOND_AGGREGATE}",
    "q9": f"the first by price after a join: {NO_SECOND_AGGREGATE}",
    "q15": NO_DISTINCT,
    "q16": NO_DISTINCT,
}
"""Why a query cannot be asked of Spark's own operators. Row-by-row Python state is another benchmark."""


class SparkStreams:
    """The three streams, with watermarks."""

    def __init__(self, spark: SparkSession, events: Events) -> None:
        self._spark = spark
        self._events = events

    @cached_property
    def persons(self) -> DataFrame:
        return read_stream(self._spark, self._events, AuctionKind.PERSONS).withWatermark("ts", "0 seconds")

    @cached_property
    def auctions(self) -> DataFrame:
        return read_stream(self._spark, self._events, AuctionKind.AUCTIONS).withWatermark("ts", "0 seconds")

    @cached_property
    def bids(self) -> DataFrame:
        return read_stream(self._spark, self._events, AuctionKind.BIDS).withWatermark("ts", "2 seconds")

    @cached_property
    def side(self) -> DataFrame:
        return self._spark.range(10_000).selectExpr("id AS key", "concat('value-', id) AS value")


def read_stream(spark: SparkSession, events: Events, kind: AuctionKind) -> DataFrame:
    """The files of an epoch in each micro-batch."""
    folder = str(events.epochs_of(kind))
    schema = spark.read.parquet(folder).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", TASKS).parquet(folder)


@dataclass(frozen=True)
class SparkQuery:
    """A query, and what its rows mean: final ones, or the newest of each key."""

    build: Callable[[SparkStreams], DataFrame]
    key: tuple[str, ...] = ()
    windows: Windows = Windows.STAY_OPEN

    @property
    def mode(self) -> str:
        return "update" if self.key else "append"


def _q3(streams: SparkStreams) -> DataFrame:
    auctions = streams.auctions.where("category = 10").selectExpr("id AS auction", "seller")
    sellers = streams.persons.where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    return auctions.join(sellers, sf.expr("seller = id")).select("name", "city", "state", "auction")


def _q5(streams: SparkStreams) -> DataFrame:
    counts = streams.bids.groupBy(sf.window("ts", "10 seconds", "2 seconds"), "auction").agg(
        sf.count("*").alias("bids")
    )
    ranked = counts.groupBy("window").agg(
        sf.max("bids").alias("most"), sf.collect_list(sf.struct("auction", "bids")).alias("all")
    )
    hot = ranked.select("window", sf.inline(sf.expr("filter(all, each -> each.bids = most)")))
    return hot.selectExpr("window.start AS window_start", "window.end AS window_end", "auction", "bids")


def _q7(streams: SparkStreams) -> DataFrame:
    window = sf.window("ts", "10 seconds")
    best = streams.bids.select("price", window).groupBy("window").agg(sf.max("price").alias("best"))
    # A join takes one column of event time from each side: the window. Computed anew, `ts` is a plain time.
    time = sf.expr("timestamp_micros(unix_micros(ts))").alias("bid_ts")
    bids = streams.bids.select("auction", "bidder", "price", "extra", time, window.alias("bid_window"))
    joined = best.join(bids, sf.expr("bid_window = window AND price = best"))
    return joined.selectExpr("auction", "bidder", "price", "bid_ts AS ts", "extra")


def _q8(streams: SparkStreams) -> DataFrame:
    persons = streams.persons.select("id", "name", sf.window("ts", "10 seconds").alias("registered"))
    sellers = streams.auctions.select("seller", sf.window("ts", "10 seconds").alias("opened"))
    both = persons.join(sellers, sf.expr("id = seller AND registered = opened"), "leftsemi")
    return both.selectExpr("id", "name", "registered.start AS window_start", "registered.end AS window_end")


def _q11(streams: SparkStreams) -> DataFrame:
    visits = streams.bids.groupBy("bidder", sf.session_window("ts", "10 seconds").alias("visit"))
    counted = visits.agg(sf.count("*").alias("bids"))
    return counted.selectExpr("bidder", "visit.start AS window_start", "visit.end AS window_end", "bids")


def _q12(streams: SparkStreams) -> DataFrame:
    arriving = streams.bids.select("bidder", sf.current_timestamp().alias("arrival"))
    counted = arriving.groupBy("bidder", sf.window("arrival", "10 seconds")).agg(sf.count("*").alias("bids"))
    return counted.selectExpr("bidder", "window.start AS window_start", "window.end AS window_end", "bids")


def _q13(streams: SparkStreams) -> DataFrame:
    named = streams.bids.join(streams.side, sf.expr("key = auction % 10000"))
    return named.select("auction", "bidder", "price", "ts", "value")


def _q14(streams: SparkStreams) -> DataFrame:
    # Declaring a Python function needs a session.
    from examples.nexmark.q14 import TIME_TYPE, count_c

    chosen = streams.bids.where("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    columns = chosen.selectExpr("auction", "bidder", "0.908 * price AS price", TIME_TYPE, "ts", "extra")
    return columns.withColumn("c_count", count_c("extra"))


def _q17(streams: SparkStreams) -> DataFrame:
    by_rank = [sf.expr(f"count_if({prices})").alias(f"{rank}_bids") for rank, prices in RANKS.items()]
    return streams.bids.groupBy("auction", sf.expr(DAY)).agg(
        sf.count("*").alias("total_bids"),
        *by_rank,
        sf.min("price").alias("min_price"),
        sf.max("price").alias("max_price"),
        sf.avg("price").alias("mean_price"),
        sf.sum("price").alias("sum_price"),
    )


def _q18(streams: SparkStreams) -> DataFrame:
    last = streams.bids.groupBy("bidder", "auction").agg(
        sf.max(sf.struct("ts", "price", "channel", "url", "extra")).alias("last")
    )
    return last.select("auction", "bidder", "last.*")


def _q19(streams: SparkStreams) -> DataFrame:
    bid = sf.struct("bidder", "price", "channel", "url", "ts", "extra")
    order = sf.struct("price", (-sf.unix_micros("ts")).alias("ago"))
    best = streams.bids.groupBy("auction").agg(sf.max_by(bid, order, 10).alias("best"))
    ranked = best.select("auction", sf.posexplode("best").alias("place", "bid"))
    return ranked.select("auction", "bid.*", sf.expr("place + 1").alias("rank"))


def _q20(streams: SparkStreams) -> DataFrame:
    auctions = streams.auctions.where("category = 10").withColumnsRenamed(
        {"ts": "auction_ts", "extra": "auction_extra"}
    )
    return streams.bids.join(auctions, sf.expr("id = auction")).drop("id")


def _q21(streams: SparkStreams) -> DataFrame:
    with_id = streams.bids.selectExpr("auction", "bidder", "price", "channel", CHANNEL_ID)
    return with_id.where("channel_id IS NOT NULL")


def _q22(streams: SparkStreams) -> DataFrame:
    parts = [f"split_part(url, '/', {place}) AS dir{place - 3}" for place in (4, 5, 6)]
    return streams.bids.selectExpr("auction", "bidder", "price", "channel", *parts)


QUERIES = {
    "q0": SparkQuery(lambda streams: streams.bids),
    "q1": SparkQuery(
        lambda streams: streams.bids.selectExpr("auction", "bidder", "0.908 * price AS price", "ts", "extra")
    ),
    "q2": SparkQuery(lambda streams: streams.bids.where("auction % 123 = 0").select("auction", "price")),
    "q3": SparkQuery(_q3),
    "q5": SparkQuery(_q5),
    "q7": SparkQuery(_q7),
    # A semi join gives out a row with its first match, before the window is over.
    "q8": SparkQuery(_q8, windows=Windows.CLOSE),
    "q10": SparkQuery(
        lambda streams: streams.bids.selectExpr(*BID, DAY, "date_format(ts, 'HH-mm') AS minute")
    ),
    "q11": SparkQuery(_q11),
    "q12": SparkQuery(_q12, key=("bidder", "window_start")),
    "q13": SparkQuery(_q13),
    "q14": SparkQuery(_q14),
    "q17": SparkQuery(_q17, key=("auction", "day")),
    "q18": SparkQuery(_q18, key=("bidder", "auction")),
    "q19": SparkQuery(_q19, key=("auction", "rank")),
    "q20": SparkQuery(_q20),
    "q21": SparkQuery(_q21),
    "q22": SparkQuery(_q22),
}
