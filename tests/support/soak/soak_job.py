"""The driver of the soak: endless generated bids → totals per bidder → Parquet, all on S3.

Run as a module it continues until it is killed; with `--rows` it reads up to that row, closes its files
and ends. Where the store is, with its credentials, comes in the environment.
"""

from __future__ import annotations

import argparse
import json
import os
from hashlib import shake_128
from typing import Any

import pyarrow as pa
from tests.support.spark.pipeline_process import JOB, local_spark
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.config import RetryPolicy, StoreConfig

STORE = "LAKESTATE_TEST_STORE"
ROWS_PER_EPOCH = 400
NOTE_BYTES = 40_000
RETRY = RetryPolicy(deadline_ms=6_000, attempt_timeout_ms=4_000)
"""Shorter than the longest outage, so that drivers live through some and give up in others."""


def note(user: str, count: int) -> str:
    """Text that does not compress, so that output fills the parts of uploads within a few epochs."""
    return shake_128(f"{user} {count}".encode()).hexdigest(NOTE_BYTES // 2)


class NotedTotals(Totals):
    """Totals per bidder, with a long note in each row of output."""

    output = "user string, n bigint, spend double, note string"

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Any:
        for rows in super().process_batch(batch, ctx):
            counts = zip(rows["user"].to_pylist(), rows["n"].to_pylist(), strict=True)
            yield rows.append_column("note", pa.array([note(*count) for count in counts]))


def output_of(store: StoreConfig) -> ls.ParquetSink:
    """Files of a few parts each, the most of them open for several epochs."""
    return ls.ParquetSink(
        f"{store.url}/out",
        options=dict(store.options),
        roll=ls.Roll(bytes="12MB", interval=None),
        compression="none",
        part_bytes="5MiB",
    )


def main() -> None:
    from lakestate.spark.auction_source import AuctionDataSource

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--rows", type=int)
    given = arguments.parse_args()
    stored = json.loads(os.environ.pop(STORE))
    store = StoreConfig(stored["url"], stored["options"], RETRY)
    spark = local_spark()
    spark.dataSource.register(AuctionDataSource)
    options = {"seed": given.seed, "rowsPerBatch": ROWS_PER_EPOCH, "columns": "bidder, price"}
    if given.rows is not None:
        options["rows"] = given.rows
    bids = spark.readStream.format("lakestate-auctions").options(**options).load()
    pipeline = ls.Pipeline(JOB, StoreConfig(f"{store.url}/checkpoints", store.options, RETRY), parallelism=2)
    (
        pipeline.source(bids)
        .transform(lambda rows: rows.selectExpr("string(bidder) as user", "double(price) as amount"))
        .key_by("user")
        .apply("totals", NotedTotals())
        .sink("out", output_of(store))
    )
    query = pipeline.start(trigger=None if given.rows is None else {"availableNow": True})
    query.awaitTermination()
    query.stop(finish_files=True)


if __name__ == "__main__":
    main()
