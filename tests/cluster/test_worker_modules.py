"""A module that one worker of a cluster lacks is found at the start, before the job is claimed."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.spark.pipeline_process import Session

if TYPE_CHECKING:
    from tests.support.spark.standalone_cluster import StandaloneCluster

OPERATORS = """
import os
import lakestate as ls

if {folder!r} in os.environ.get("TMPDIR", ""):
    raise ModuleNotFoundError("No module named 'pricing'", name="pricing")

class Nothing(ls.Operator):
    def process_batch(self, batch, ctx):
        return ()
"""

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from tests.support.spark.pipeline_process import QUICK_JVM, QUICK_SPARK
import lakestate as ls
import shop_operators

spark = (
    SparkSession.builder.master(sys.argv[1])
    .config(map=QUICK_SPARK)
    .config("spark.executor.memory", "512m")
    .config("spark.executor.extraJavaOptions", QUICK_JVM)
    .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "10min")
    .config("spark.cores.max", "2")
    .getOrCreate()
)
spark.sparkContext.addPyFile(shop_operators.__file__)
pipeline = ls.Pipeline("shop", sys.argv[2], parallelism=2)
source = pipeline.source(spark.readStream.format("rate").load())
source.key_by("value").apply("nothing", shop_operators.Nothing())
try:
    pipeline.start()
except ls.InvalidInputError as error:
    print("refused:", error.object_name, error.found, sep="|", flush=True)
"""


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_module_that_one_worker_lacks_is_named_with_the_worker(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    cluster.complete()
    lacking = list(cluster.workers)[-1]
    (tmp_path / "shop_operators.py").write_text(OPERATORS.format(folder=str(lacking)))
    (tmp_path / "job.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "job.py"), cluster.url, str(tmp_path / "checkpoints")]
    env = {"TMPDIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    driver = Session(command, tmp_path / "driver.log", env)
    try:
        assert driver.wait() == 0, driver.said()
    finally:
        driver.kill()
    [refused] = [line for line in driver.said().splitlines() if line.startswith("refused:")]
    assert refused.split("|")[1:] == [
        "module pricing",
        f"ModuleNotFoundError: No module named 'pricing', on {platform.node()}, {sys.executable}",
    ]
    assert not (tmp_path / "checkpoints").exists()
