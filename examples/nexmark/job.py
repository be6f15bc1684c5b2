"""A query of Nexmark as a pipeline: generated streams in, Parquet files out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import lakestate as ls
from lakestate.row_kind import StreamKind
from lakestate.spark.auction_source import AuctionDataSource
from lakestate.spark.streams import SourceStream, Stream
from lakestate.testing.auctions import AUCTION_OPEN_MAX_US, DISORDER_US, EVENTS_PER_ROUND, AuctionKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EventSource", "Feed", "QueryJob", "Stream", "Streams", "query_job"]

QUERIES = tuple(
    sorted((file.stem for file in Path(__file__).parent.glob("q*.py")), key=lambda name: int(name[1:]))
)
"""The names of all queries that are here."""

BID_DELAY = timedelta(microseconds=DISORDER_US)
"""Bids come out of order by less than this."""

AUCTION_OPEN_MAX = timedelta(microseconds=AUCTION_OPEN_MAX_US)
"""No auction is open for longer."""


class EventSource(Protocol):
    """Where the rows of a query come from."""

    def read(self, spark: SparkSession, kind: AuctionKind) -> DataFrame:
        """The rows of a kind, as a stream."""
        ...


@dataclass(frozen=True, slots=True)
class Feed:
    """The events of a run: of 50, one is a person, three are auctions and 46 are bids.

    `every` is the event time from event to event.
    """

    events: int = 100_000
    events_per_epoch: int = 20_000
    every: str = "10 ms"
    seed: int = 7

    def __post_init__(self) -> None:
        if self.events_per_epoch < EVENTS_PER_ROUND:
            raise ls.InvalidInputError(
                "an epoch would have no row of some source",
                found=f"events_per_epoch={self.events_per_epoch}",
                expected=f"at least {EVENTS_PER_ROUND}",
            )

    def read(self, spark: SparkSession, kind: AuctionKind) -> DataFrame:
        """The rows of a kind among the events, as a stream."""
        options = {
            "kind": kind.value,
            "rows": kind.rows_in(self.events),
            "rowsPerBatch": kind.rows_in(self.events_per_epoch),
            "every": self.every,
            "seed": self.seed,
        }
        spark.dataSource.register(AuctionDataSource)
        return spark.readStream.format(AuctionDataSource.name()).options(**options).load()


class Streams:
    """The sources of a pipeline. One that a query does not ask for is not read."""

    def __init__(self, pipeline: ls.Pipeline, spark: SparkSession, feed: EventSource) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._feed = feed

    @cached_property
    def persons(self) -> SourceStream:
        """id, name, email, credit_card, city, state, ts, extra."""
        return self._source(AuctionKind.PERSONS)

    @cached_property
    def auctions(self) -> SourceStream:
        """id, item, description, initial_bid, reserve, ts, expires, seller, category, extra."""
        return self._source(AuctionKind.AUCTIONS)

    @cached_property
    def bids(self) -> SourceStream:
        """auction, bidder, price, channel, url, ts, extra."""
        return self._source(AuctionKind.BIDS, delay=BID_DELAY)

    @cached_property
    def side(self) -> DataFrame:
        """A static table: key from 0 to 9999, value."""
        return self._spark.range(10_000).selectExpr("id AS key", "concat('value-', id) AS value")

    def _source(self, kind: AuctionKind, **options: Any) -> SourceStream:
        rows = self._feed.read(self._spark, kind)
        return self._pipeline.source(rows, name=kind.value, event_time="ts", **options)


@dataclass(frozen=True, slots=True)
class QueryJob:
    """A query that can be started, and what its rows mean: final rows, updates by key, or changes."""

    pipeline: ls.Pipeline
    kind: StreamKind


def query_job(
    name: str,
    spark: SparkSession,
    feed: EventSource,
    folder: Path,
    *,
    roll: ls.Roll = ls.Roll(),  # noqa: B008
    **settings: Any,
) -> QueryJob:
    """The pipeline of a query. State is below `folder/checkpoints`, output below `folder/out`.

    Files hold a log of results that change: each update is a row.
    """
    query = import_module(f"examples.nexmark.{name}")
    pipeline = ls.Pipeline(name, f"file://{folder}/checkpoints", **{"parallelism": 2} | settings)
    partition_by: Sequence[Any] = getattr(query, "PARTITION_BY", ())
    rows: Stream = query.build(Streams(pipeline, spark, feed))
    rows.as_log().sink("out", ls.ParquetSink(f"file://{folder}/out", partition_by=partition_by, roll=roll))
    return QueryJob(pipeline, rows.kind)
