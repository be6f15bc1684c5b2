"""A program that runs a pipeline until it is stopped by signals, for tests that send them.

`python signalled_process.py folder block|call [epoch that hangs]` writes `out`, and the epochs that have
finished to `epochs`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.spark.pipeline_process import local_spark

import lakestate as ls
from lakestate.spark.auction_source import AuctionDataSource


class Copies(ls.Operator):
    """Copies bids. In one epoch it hangs."""

    input = "bidder bigint, price bigint"
    output = "bidder bigint, price bigint"

    def __init__(self, folder: Path, hangs_in: int) -> None:
        self.folder = folder
        self.hangs_in = hangs_in

    def process_batch(self, batch: Any, ctx: ls.OperatorContext) -> Any:
        while ctx.epoch == self.hangs_in:
            (self.folder / "hangs").touch()
            time.sleep(0.1)
        yield batch


class Epochs:
    def __init__(self, file: Path) -> None:
        self.file = file

    def on_epoch(self, progress: ls.EpochProgress) -> None:
        with self.file.open("a") as file:
            file.write(f"{progress.epoch} {progress.rows_total}\n")


def main() -> None:
    folder, form, hangs_in = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    spark = local_spark()
    spark.dataSource.register(AuctionDataSource)
    bids = (
        spark.readStream.format("lakestate-auctions").options(rowsPerBatch=50, columns="bidder, price").load()
    )
    pipeline = ls.Pipeline(
        "copies", f"file://{folder}/checkpoints", parallelism=1, cache_dir=folder / "cache"
    )
    copies = pipeline.source(bids).apply("copies", Copies(folder, hangs_in))
    copies.sink("out", ls.ParquetSink(f"file://{folder}/out"))
    options: dict[str, Any] = {
        "trigger": {"processingTime": "200 milliseconds"},
        "listeners": [Epochs(folder / "epochs")],
    }
    (folder / "pid").write_text(str(os.getpid()))
    if form == "block":
        with pipeline.run(**options) as query:
            query.awaitTermination()
    else:
        pipeline.start(**options).run_until_stopped()
    (folder / "ended").touch()


if __name__ == "__main__":
    main()
