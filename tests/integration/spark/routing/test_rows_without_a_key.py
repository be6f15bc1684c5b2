"""Rows without a key stay where Spark reads them, or every subtask gets an equal part."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.spark.pipelines import read_stream, run_available, write_input

import lakestate as ls

FILES, ROWS = 4, 50
"""Spark reads four small files in two partitions: it has two cores."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(2 * FILES):
        rows = pa.table({"file": [number] * ROWS, "row": list(range(ROWS))})
        write_input(tmp_path / "in", number, rows)
    return tmp_path


def outputs_of_files(folder: Path) -> dict[int, int]:
    """How many outputs have rows of each input file. Every row is in one output, once."""
    rows, outputs = Counter[tuple[int, int]](), Counter[int]()
    for output in folder.glob("out-*/**/*.parquet"):
        found = pq.ParquetFile(output).read().to_pylist()
        rows.update((row["file"], row["row"]) for row in found)
        outputs.update({row["file"] for row in found})
    assert rows == Counter((file, row) for file in range(2 * FILES) for row in range(ROWS))
    return dict(outputs)


def write(spark: Any, folder: Path, parallelism: int, change: Any = None, sources: int = 1) -> dict[int, int]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=parallelism)
    for number in range(sources):
        frame = read_stream(spark, folder / "in", "file bigint, row bigint", FILES).where(
            f"file % {sources} = {number}"
        )
        stream = pipeline.source(frame, name=f"source-{number}")
        stream = stream if change is None else stream.transform(change)
        stream.sink(f"out-{number}", ls.ParquetSink(folder / f"out-{number}"))
    run_available(pipeline, finish_files=True)
    return outputs_of_files(folder)


@pytest.mark.parametrize("change", [None, lambda df: df.where("row >= 0").select("file", "row")])
def test_they_stay_where_they_are_read_if_there_are_partitions_enough(
    spark: Any, folder: Path, change: Any
) -> None:
    assert set(write(spark, folder, 2, change).values()) == {1}


def test_every_subtask_gets_an_equal_part_if_there_are_more_subtasks_than_partitions(
    spark: Any, folder: Path
) -> None:
    assert set(write(spark, folder, 3).values()) == {3}


def test_a_transform_that_moves_rows_leaves_equal_parts(spark: Any, folder: Path) -> None:
    assert set(write(spark, folder, 2, lambda df: df.repartition(5)).values()) == {2}


def test_every_subtask_gets_rows_of_each_of_several_sources(spark: Any, folder: Path) -> None:
    assert set(write(spark, folder, 2, sources=2).values()) == {2}
