"""A sink for Delta or Iceberg tables, Spark's or ours, in a process of its own.

`python -m benchmarks.sinks.table_sinks NAME SOURCE FOLDER` prints as JSON what its epochs took. It runs on
the Spark of `scripts/tables-env`: the jars of both formats are for an older Spark than that of the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from tests.support.jars import DELTA, ICEBERG, spark_jars

import lakestate as ls
from benchmarks.core import Unavailable
from benchmarks.core.run import root_cause
from benchmarks.sinks.readable_rows import files_of_delta, files_of_iceberg
from benchmarks.sinks.sink_runs import CODEC, ZSTD_LEVEL, check_rows, read_input, run_pipeline
from benchmarks.spark_jobs.epoch_times import Times, batch_times
from benchmarks.spark_jobs.local_spark import local_spark

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-matrix" / "4.1" / "bin" / "python"
SPARK_VERSION = "4.1"
TIMEOUT_S = 240
RUNS = 2
"""After one that is not counted: a new JVM compiles what it runs."""
NAMESPACE = "bench.shop"
SPARK_DELTA, SPARK_ICEBERG = "Spark's Delta sink", "Spark's Iceberg sink"
OUR_DELTA, OUR_ICEBERG = "DeltaSink", "IcebergSink"
GROUPS = {SPARK_DELTA: DELTA, SPARK_ICEBERG: ICEBERG}
"""The jars of Spark's sinks."""


@dataclass(frozen=True, slots=True)
class Took:
    """What the epochs of a sink took."""

    clock_ms: list[float]
    cpu_ms: list[float]


def run_in_own_session(name: str, source: Path, folder: Path) -> Took:
    """Run a sink in the environment of its jars."""
    if not PYTHON.exists():
        raise Unavailable(f"there is no environment with Spark {SPARK_VERSION}: run scripts/tables-env")
    group = GROUPS.get(name)
    if group is not None and not any((PYTHON.parents[1] / "jars" / group).glob("*.jar")):
        raise Unavailable(
            f"the jars of {group} for Spark {SPARK_VERSION} are not there: run scripts/tables-env"
        )
    command = [str(PYTHON), "-m", "benchmarks.sinks.table_sinks", name, str(source), str(folder)]
    # What is imported there is this repository and that environment, whatever this process was given.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it had not ended after {TIMEOUT_S} s") from None
    if done.returncode:
        raise RuntimeError(root_cause(done.stderr))
    return Took(**json.loads(done.stdout.splitlines()[-1]))


def main(name: str, source: Path, folder: Path) -> None:
    group = GROUPS.get(name)
    settings = {} if group is None else spark_jars(group) | _settings(group, folder)
    spark = local_spark(settings)
    runs = [CONTENDERS[name](spark, source, folder / f"run_{number}") for number in range(1 + RUNS)][1:]
    took = Took([ms for times in runs for ms in times.clock_ms], [times.cpu_ms for times in runs])
    print(json.dumps(asdict(took)), flush=True)
    spark.stop()


def _settings(group: str, folder: Path) -> dict[str, str]:
    if group == DELTA:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.parquet.compression.codec": CODEC,
        }
    return {
        "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.bench.type": "hadoop",
        "spark.sql.catalog.bench.warehouse": str(folder / "warehouse"),
    }


def _spark_delta(spark: SparkSession, source: Path, folder: Path) -> Times:
    writer = read_input(spark, source).writeStream.format("delta").option("path", str(folder / "out"))
    times = batch_times(writer.outputMode("append").option("checkpointLocation", str(folder / "c")))
    check_rows(files_of_delta(folder / "out")() or (), source)
    return times


def _spark_iceberg(spark: SparkSession, source: Path, folder: Path) -> Times:
    stream = read_input(spark, source)
    table = f"{NAMESPACE}.{folder.name}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in stream.schema)
    spark.sql(
        f"CREATE TABLE {table} ({columns}) USING iceberg "
        f"TBLPROPERTIES ('write.parquet.compression-codec' = '{CODEC}')"
    )
    writer = stream.writeStream.format("iceberg").option("path", table).option("fanout-enabled", "true")
    times = batch_times(writer.outputMode("append").option("checkpointLocation", str(folder / "c")))
    files = [row.file_path for row in spark.sql(f"SELECT file_path FROM {table}.files").collect()]
    check_rows([Path(file.removeprefix("file:")) for file in files], source)
    return times


def _delta(spark: SparkSession, source: Path, folder: Path) -> Times:
    sink = ls.DeltaSink(f"file://{folder}/out", compression=CODEC, compression_level=ZSTD_LEVEL)
    times = run_pipeline(spark, source, folder, sink)
    check_rows(files_of_delta(folder / "out")() or (), source)
    return times


def _iceberg(spark: SparkSession, source: Path, folder: Path) -> Times:
    warehouse = folder / "warehouse"
    sink = ls.IcebergSink(
        "bench.events", catalog=str(warehouse), compression=CODEC, compression_level=ZSTD_LEVEL
    )
    times = run_pipeline(spark, source, folder, sink)
    check_rows(files_of_iceberg(warehouse, "bench.events")() or (), source)
    return times


CONTENDERS: dict[str, Callable[[SparkSession, Path, Path], Times]] = {
    SPARK_DELTA: _spark_delta,
    OUR_DELTA: _delta,
    SPARK_ICEBERG: _spark_iceberg,
    OUR_ICEBERG: _iceberg,
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
