"""What Spark sees of an output during a run, by directory and by pattern."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.sinks.test_readers import FORMATS, PARTITIONS, moments, open_sink
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@PARTITIONS
@pytest.mark.parametrize("extension", FORMATS)
def test_spark_sees_committed_rows_only(
    spark: SparkSession, tmp_path: Path, extension: str, partition_by: Sequence[str]
) -> None:
    job = SinkJob(
        lambda: open_sink(f"file://{tmp_path}", {}, extension, partition_by), numbered_rows(20), parallelism=1
    )
    folder = "country=*/" if partition_by else ""
    found: list[tuple[str, str, list[int]]] = []
    expected: list[tuple[str, str, list[int]]] = []
    for moment, epochs in moments(job):
        rows = expected_rows(job.rows, epochs, job.parallelism)
        for pattern in ("", f"{folder}*.{extension}", f"{folder}part-*", f"{folder}*"):
            read = spark.read.format(extension).load(f"{tmp_path}/{pattern}")
            found.append((moment, pattern, numbers(read)))
            expected.append((moment, pattern, rows))
        everywhere = spark.read.format(extension).option("recursiveFileLookup", True)
        found.append((moment, "recursive", numbers(everywhere.load(str(tmp_path)))))
        expected.append((moment, "recursive", rows))
    assert found == expected


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row["row"] for row in rows.select("row").collect())
