"""One local Spark session for all tests that need Spark: starting a JVM takes seconds.

It has the jars of Kafka's connector. A test that uses them asks for them first: `require_jars(SPARK_KAFKA)`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.jars import SPARK_KAFKA, spark_jars
from tests.support.repository import ROOT
from tests.support.spark.pipeline_process import QUICK_SPARK, TEST_PYTHON_DAEMON, TEST_RUN

if TYPE_CHECKING:
    from collections.abc import Iterator

if not hasattr(DataFrame, "toArrow"):
    # Spark 3.5 has it under another name.
    DataFrame.toArrow = lambda frame: pa.Table.from_batches(frame._collect_as_arrow())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Python workers are started by the JVM: they need this interpreter, and this source tree.

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # They outlive the daemon that forked them: this tells them from those of other runs.
    os.environ[TEST_RUN] = str(os.getpid())
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(Path(__file__).parent)])
    session = (
        SparkSession.builder.appName("lakestate tests")
        .master("local[2,4]")
        .config(map=QUICK_SPARK | spark_jars(SPARK_KAFKA))
        .config("spark.python.daemon.module", TEST_PYTHON_DAEMON)
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
