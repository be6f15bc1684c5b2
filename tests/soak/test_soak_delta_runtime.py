"""A Delta table that Delta's own runtime for Spark reads, rewrites and alters between the epochs of a job.

The runtime has to fit its Spark, so it runs in the environment that `scripts/tables-env` makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.repository import ROOT
from tests.support.sinks.delta_job import EVERY_EPOCH, DeltaFolder
from tests.support.sinks.sink_job import expected_rows, numbered_rows
from tests.support.soak.table_runtime import TableRuntime, delta_settings

from lakestate.sinks import Roll

pytestmark = pytest.mark.soak

ENVIRONMENT = ROOT / ".venv-matrix" / "4.1"
ROWS = 200
ROUNDS = 2
VISIBLE = Roll(bytes="60KB", interval=None, visible="0 seconds")


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[TableRuntime]:
    jars = sorted((ENVIRONMENT / "jars" / "delta").glob("*.jar"))
    if not jars:
        pytest.skip("the environment of Spark 4.1 is not there: run scripts/tables-env")
    runtime = TableRuntime(ENVIRONMENT / "bin/python", jars, delta_settings(), tmp_path / "spark.log")
    yield runtime
    runtime.close()


@pytest.mark.parametrize("roll", [EVERY_EPOCH, VISIBLE], ids=["every epoch", "visible"])
def test_spark_reads_and_rewrites_a_table_between_epochs(
    tmp_path: Path, spark: TableRuntime, roll: Roll
) -> None:
    folder = DeltaFolder(tmp_path / "table")
    job = folder.job(numbered_rows(ROWS), roll=roll, partition_by=["country"])
    name = f"delta.`{folder.root}`"

    def rows_read(version: int | None = None) -> list[int]:
        at = "" if version is None else f" VERSION AS OF {version}"
        return sorted(row for (row,) in spark.sql(f"SELECT row FROM {name}{at}"))

    def expected() -> list[int]:
        return expected_rows(job.rows, job.published.epoch, job.parallelism)

    seen = {}
    for number in range(ROUNDS):
        job.run_to(job.published.epoch + 3, finish_files=False)
        job.run_epoch(finish_files=True)
        assert rows_read() == folder.rows() == expected()
        seen[folder.table().version()] = expected()
        every, some = (
            spark.files_read(f"SELECT * FROM {name} {where}") for where in ("", "WHERE country = 'DE'")
        )
        assert 0 < some < every
        for statement in (f"OPTIMIZE {name}", f"ALTER TABLE {name} ADD COLUMN note_{number} STRING"):
            spark.sql(statement)
            job.run_epoch(finish_files=number % 2 == 0)
    job.run_epoch(finish_files=True)
    assert rows_read() == folder.rows() == expected()
    # Spark's time travel finds every version as it was.
    assert {version: rows_read(version) for version in seen} == seen
    done = {each["operation"] for each in folder.table().history()}
    assert {"OPTIMIZE", "ADD COLUMNS"} <= done
