"""What each query of Nexmark answers about a feed: DuckDB over all events at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from examples.nexmark.job import BID_DELAY, Feed
from tests.support.repository import ROOT

from lakestate.config import duration_us
from lakestate.testing.auctions import AuctionHouse, AuctionKind

ALL_QUERIES = tuple(f"q{number}" for number in range(23))
SIDE = pa.table({"key": range(10_000), "value": [f"value-{key}" for key in range(10_000)]})


def answer(query: str, feed: Feed, threads: int = 1) -> pa.Table:
    """The rows of a query, without windows that are still open at the end of the feed."""
    tables = {kind: rows_of(feed, kind) for kind in AuctionKind}
    return answer_over(query, tables, watermark(query, tables), threads)


def answer_over(
    query: str, tables: Mapping[AuctionKind, pa.Table], until: datetime, threads: int = 1
) -> pa.Table:
    """The rows of a query over these events, without windows that end after `until`."""
    with duckdb.connect(config={"threads": threads}) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET VARIABLE until = $1::TIMESTAMPTZ", [until])
        for kind, rows in tables.items():
            database.register(kind.value, rows)
        database.register("side", SIDE)
        return database.sql(query_text(query)).to_arrow_table()


def query_text(query: str) -> str:
    """The batch query, in the SQL of DuckDB."""
    return (ROOT / f"examples/nexmark/{query}.sql").read_text()


def rows_of(feed: Feed, kind: AuctionKind) -> pa.Table:
    """The rows of a kind among the events of a feed."""
    house = AuctionHouse(feed.seed, duration_us(feed.every))
    return pa.table(house.rows(kind, 0, kind.rows_in(feed.events)))


def watermark(query: str, tables: Mapping[AuctionKind, pa.Table]) -> datetime:
    """Up to when all that the query reads is known at the end of the events."""
    read = re.findall(r"\b(?:FROM|JOIN) (\w+)", query_text(query))
    delays = {AuctionKind.BIDS: BID_DELAY}
    return min(
        pc.max(rows["ts"]).as_py() - delays.get(kind, timedelta(0))
        for kind, rows in tables.items()
        if kind.value in read
    )
