"""A pipeline into Delta tables, in a separate process that a test kills. Run as a module it is the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.spark.pipeline_process import JOB, main


def delta_pipeline(spark: Any, folder: Path) -> Any:
    """Input files → running totals per user → Delta tables, below one folder.

    `out` has every total that there was, `kept` the newest of each user.
    """
    from tests.support.spark.pipelines import read_stream
    from tests.support.spark.totals import Totals

    import lakestate as ls

    pipeline = ls.Pipeline(JOB, f"file://{folder}/checkpoints", parallelism=2)
    totals = pipeline.source(read_stream(spark, folder / "in")).key_by("user").apply("totals", Totals())
    # Every epoch shows its rows. Files are finished in some epochs, and stay open in others.
    roll = ls.Roll(bytes="6KB", interval=None, visible="0 seconds")
    totals.sink("out", ls.DeltaSink(f"file://{folder}/out", roll=roll))
    # A key without a value equals nothing, and is refused.
    named = totals.where("user IS NOT NULL")
    named.sink("kept", ls.DeltaSink(f"file://{folder}/kept", key=["user"]))
    return pipeline


if __name__ == "__main__":
    main(delta_pipeline)
