"""The auction house as a Spark stream: every row once, in any trigger, over restarts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.spark.auction_source import AuctionDataSource, AuctionRead, AuctionStreamReader
from lakestate.testing.auctions import AuctionHouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(spark: SparkSession, **options: Any) -> DataFrame:
    spark.dataSource.register(AuctionDataSource)
    return spark.readStream.format("lakestate-auctions").options(seed=5, **options).load()


def expected(kind: str, start: int, stop: int) -> list[dict[str, Any]]:
    return pa.table(AuctionHouse(5).rows(kind, start, stop)).sort_by(SORTED[kind]).to_pylist()


SORTED = {
    "bids": [(name, "ascending") for name in ("auction", "bidder", "price", "channel", "ts")],
    "persons": "id",
    "auctions": "id",
}


class Collected:
    """Keeps the rows of every batch, and the offsets that Spark wrote."""

    def __init__(self, checkpoint: Path) -> None:
        self.batches: list[pa.Table] = []
        self._checkpoint = checkpoint

    def run(self, frame: DataFrame, **trigger: Any) -> Any:
        writer = frame.writeStream.foreachBatch(lambda batch, _: self.batches.append(batch.toArrow()))
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return pa.concat_tables(self.batches).sort_by(SORTED[kind]).to_pylist()

    def offsets(self) -> list[dict[str, int]]:
        files = [path for path in (self._checkpoint / "offsets").iterdir() if path.name.isdigit()]
        return [json.loads(path.read_text().splitlines()[-1]) for path in sorted(files, key=str)]


def test_available_now_reads_every_bid_once_in_batches_and_continues_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    collected = Collected(tmp_path / "spark")
    for rows in (2500, 4000):
        frame = stream(spark, rows=rows, rowsPerBatch=2000, partitions=3)
        assert collected.run(frame, availableNow=True).awaitTermination(120)
    assert [batch.num_rows for batch in collected.batches] == [2000, 500, 1500]
    assert collected.rows("bids") == expected("bids", 0, 4000)
    assert collected.offsets() == [{"row": row} for row in (2000, 2500, 4000)]


def test_a_processing_time_trigger_reads_an_endless_stream(spark: SparkSession, tmp_path: Path) -> None:
    collected = Collected(tmp_path / "spark")
    query = collected.run(stream(spark, kind="persons", rowsPerBatch=10), processingTime="0 seconds")
    deadline = time.monotonic() + 60
    while len(collected.batches) < 3 and query.isActive and time.monotonic() < deadline:
        query.awaitTermination(0.05)
    query.stop()
    count = 10 * len(collected.batches)
    assert count >= 30
    assert collected.rows("persons") == expected("persons", 0, count)


def test_only_chosen_columns_are_generated_and_time_passes_as_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    collected, names = Collected(tmp_path / "spark"), ["auction", "bidder", "price", "channel", "ts"]
    frame = stream(spark, rows=100, columns=" , ".join(names), every="1 second")
    assert frame.columns == names
    assert collected.run(frame, availableNow=True).awaitTermination(120)
    rows = pa.table(AuctionHouse(5, 1_000_000).rows("bids", 0, 100, names))
    assert collected.rows("bids") == rows.sort_by(SORTED["bids"]).to_pylist()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("columns", "auction, bider", r"bids have no such column: bider; .*did you mean bidder\?"),
        ("columns", "ts,,", "bids have no such column: ; found auction, bidder"),
        (
            "every",
            "0 s",
            "invalid value of an option: every; found 0 s; expected a duration of at least 1 us",
        ),
        ("every", "soon", "not a duration; found 'soon'"),
    ],
)
def test_columns_and_times_that_cannot_be_are_refused(option: str, value: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        AuctionRead.from_options({option: value})


def test_a_wrong_option_is_refused_when_the_stream_is_loaded(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="invalid value of an option: rowsPerBatch; found many"):
        stream(spark, rowsPerBatch="many")


def test_available_now_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="set the option rows"):
        AuctionStreamReader(AuctionRead()).prepareForTriggerAvailableNow()


def test_a_nearer_end_after_a_restart_does_not_take_rows_back() -> None:
    reader = AuctionStreamReader(AuctionRead(rows=100))
    assert reader.latestOffset({"row": 300}, reader.getDefaultReadLimit()) == {"row": 300}
    assert reader.partitions({"row": 300}, {"row": 300}) == []
