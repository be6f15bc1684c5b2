"""The driver of `pipeline_process` with PostgreSQL as its target: a log of all rows, and the newest by key.

The folder has a file `dsn`, which says where the server is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.spark.pipeline_process import JOB, main
from tests.support.spark.pipelines import read_stream
from tests.support.spark.totals import Totals

import lakestate as ls


def postgres_pipeline(spark: Any, folder: Path) -> ls.Pipeline:
    """Input files → running totals per user → two tables."""
    dsn = (folder / "dsn").read_text()
    pipeline = ls.Pipeline(JOB, f"file://{folder}/checkpoints", parallelism=2)
    totals = pipeline.source(read_stream(spark, folder / "in")).key_by("user").apply("totals", Totals())
    totals.sink("log", ls.PostgresSink(dsn, "kill_log", create=True))
    # A key without a value replaces nothing in PostgreSQL, and is refused.
    named = totals.where("user IS NOT NULL")
    named.sink("newest", ls.PostgresSink(dsn, "kill_newest", key=["user"], create=True))
    return pipeline


if __name__ == "__main__":
    main(postgres_pipeline)
