"""q14: bids in a price range, with the time of day, and how often a letter occurs: a Python function."""

import pyarrow as pa
import pyarrow.compute as pc
from examples.nexmark.job import Stream, Streams
from pyspark.sql import functions as F  # noqa: N812

TIME_TYPE = """
    CASE WHEN hour(ts) BETWEEN 8 AND 18 THEN 'dayTime'
         WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'nightTime'
         ELSE 'otherTime' END AS bid_time_type
"""


@F.arrow_udf("bigint")
def count_c(texts: pa.Array) -> pa.Array:
    """How often the letter c is in each text."""
    return pc.count_substring(texts, "c").cast(pa.int64())


def build(streams: Streams) -> Stream:
    """Bids, with the price in another currency."""
    return (
        streams.bids.where("0.908 * price > 1000000 AND 0.908 * price < 50000000")
        .select("auction", "bidder", "0.908 * price AS price", TIME_TYPE, "ts", "extra")
        .transform(lambda bids: bids.withColumn("c_count", count_c("extra")))
    )
