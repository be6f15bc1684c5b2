"""Run a query of Nexmark on local Spark: `.venv/bin/python -m examples.nexmark q5 --events 1000000`.

Run it from the root of the repository. It begins anew, or continues what is in `--folder`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from examples.bidder_totals import local_spark
from examples.nexmark.job import QUERIES, Feed, query_job

import lakestate as ls


def new_folder(query: str) -> Path:
    """An empty folder for the state and output of a query."""
    folder = Path(tempfile.gettempdir()) / "lakestate-nexmark" / query
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def main() -> None:
    """Run the query over all events, then show its first rows."""
    default = Feed()
    arguments = argparse.ArgumentParser(
        prog="python -m examples.nexmark", description="Run a query of Nexmark."
    )
    arguments.add_argument("query", choices=QUERIES)
    arguments.add_argument("--events", type=int, default=default.events)
    arguments.add_argument("--events-per-epoch", type=int, default=default.events_per_epoch)
    arguments.add_argument(
        "--every", default=default.every, help='event time from event to event, such as "10 ms"'
    )
    arguments.add_argument("--seed", type=int, default=default.seed)
    arguments.add_argument("--folder", type=Path, help="folder for state and output")
    given = arguments.parse_args()
    folder = (given.folder or new_folder(given.query)).absolute()
    feed = Feed(given.events, given.events_per_epoch, given.every, given.seed)
    spark = local_spark()
    query = query_job(given.query, spark, feed, folder).pipeline.start(
        trigger={"availableNow": True}, listeners=[ls.ProgressLine(sys.stdout)]
    )
    query.awaitTermination()
    query.stop(finish_files=True)
    rows = spark.read.parquet(str(folder / "out"))
    rows.show(10, truncate=40)
    print(f"{rows.count():,} rows in {folder / 'out'}")


if __name__ == "__main__":
    main()
