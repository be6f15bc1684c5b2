"""Spark's own sink for Delta or Iceberg tables, in a process with its jars; prints milliseconds as JSON.

python -m benchmarks.sinks.spark_table_sink delta|iceberg SOURCE FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.jars import DELTA, spark_jars

from benchmarks.sinks.bench_sinks import CODEC, read_input
from benchmarks.spark_jobs.epoch_times import batch_times
from benchmarks.spark_jobs.local_spark import local_spark

TABLE = "bench.shop.events"


def main(group: str, source: Path, folder: Path) -> None:
    spark = local_spark(spark_jars(group) | _settings(group, folder))
    stream = read_input(spark, source)
    if group == DELTA:
        writer = stream.writeStream.format("delta").option("path", str(folder / "out"))
    else:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS bench.shop")
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in stream.schema)
        spark.sql(
            f"CREATE TABLE {TABLE} ({columns}) USING iceberg "
            f"TBLPROPERTIES ('write.parquet.compression-codec' = '{CODEC}')"
        )
        writer = stream.writeStream.format("iceberg").option("path", TABLE).option("fanout-enabled", "true")
    times = batch_times(writer.outputMode("append").option("checkpointLocation", str(folder / "c")))
    print(json.dumps(times.clock_ms), flush=True)
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


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
