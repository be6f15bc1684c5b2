"""The Spark session of the benchmarks: local, on two cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
}


def local_spark(settings: dict[str, str] | None = None, *, master: str = "local[2]") -> SparkSession:
    """A session whose Python workers can import this repository; on a cluster if one is named."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Spark's own code for pandas warns once for each key.
    os.environ["PYTHONWARNINGS"] = "ignore::FutureWarning"
    here, given = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([here, given] if given else [here])
    session = SparkSession.builder.master(master).config(map=SETTINGS | (settings or {})).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
