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


def local_spark(settings: dict[str, str] | None = None) -> SparkSession:
    """A session whose Python workers can import this repository."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    here, given = str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([here, given] if given else [here])
    session = SparkSession.builder.master("local[2]").config(map=SETTINGS | (settings or {})).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
