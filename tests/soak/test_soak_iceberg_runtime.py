"""An Iceberg table that Iceberg's own runtime for Spark maintains and reads while a job writes to it.

The runtime has to fit its Spark, so it runs in the environment that `scripts/tables-env` makes.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.jars import ICEBERG
from tests.support.sinks.iceberg_job import TABLE, Warehouse
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows
from tests.support.soak.table_runtime import (
    CATALOG,
    RefusedError,
    TableRuntime,
    iceberg_settings,
    open_runtime,
)

from lakestate.sinks import Roll

pytestmark = pytest.mark.soak

NAME = f"{CATALOG}.{TABLE}"
ROWS = 200
ROUNDS_MIN = 4
TAGS_MAX = 8
"""Their rows are kept in memory."""
VISIBLE = Roll(bytes="60KB", interval=None, visible="0 seconds")
LARGE = Roll(bytes="60KB", interval=None)

REWRITE = (
    f"CALL {CATALOG}.system.rewrite_data_files(table => '{TABLE}', options => map('min-input-files', '2'))"
)
MANIFESTS = f"CALL {CATALOG}.system.rewrite_manifests('{TABLE}')"
EXPIRE = (
    f"CALL {CATALOG}.system.expire_snapshots(table => '{TABLE}', "
    "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 3)"
)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def spark(warehouse: Warehouse, tmp_path: Path) -> Iterator[TableRuntime]:
    with open_runtime(ICEBERG, iceberg_settings(warehouse.root), tmp_path / "spark.log") as runtime:
        yield runtime


@dataclass
class MaintainedJob:
    """A job, and what Spark did to its table meanwhile."""

    job: SinkJob
    spark: TableRuntime
    beside_epochs: Counter[str] = field(default_factory=Counter)
    between_epochs: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    tagged: dict[str, list[int]] = field(default_factory=dict)
    """The rows that Spark read in a snapshot when it was new, by the tag that keeps it."""

    def run_round(self, number: int) -> None:
        """Odd rounds wait for each statement between two epochs, even ones write while it runs."""
        is_beside = number % 2 == 0
        statements = {"rewrite": REWRITE, "manifests": MANIFESTS, "expire": EXPIRE}
        if number % 4 < 2:
            statements["column"] = f"ALTER TABLE {NAME} ADD COLUMN note_{number} string"
        for what, statement in statements.items():
            self.spark.begin(statement)
            while is_beside and not self.spark.is_done():
                self.job.run_epoch()
            try:
                self.spark.result()
                (self.beside_epochs if is_beside else self.between_epochs)[what] += 1
            except RefusedError as refusal:
                self.refused.append(f"{what}: {refusal}")
            self.job.run_to(self.job.published.epoch + 3, finish_files=False)
        if number % 2 == 0 and len(self.tagged) < TAGS_MAX:
            self.tag(f"round-{number}")

    def tag(self, name: str) -> None:
        self.spark.sql(f"ALTER TABLE {NAME} CREATE TAG `{name}`")
        self.tagged[name] = self.rows_read(f"VERSION AS OF '{name}'")

    def rows_read(self, version: str = "") -> list[int]:
        return sorted(row for (row,) in self.spark.sql(f"SELECT row FROM {NAME} {version}"))

    def expected(self, epoch: int) -> list[int]:
        return expected_rows(self.job.rows, epoch, self.job.parallelism)


@pytest.mark.parametrize("roll", [VISIBLE, LARGE], ids=["visible", "large"])
def test_nothing_is_lost_or_double_in_a_table_that_spark_maintains(
    roll: Roll,
    warehouse: Warehouse,
    spark: TableRuntime,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = warehouse.job(numbered_rows(ROWS), roll=roll, partition_by=["country"])
    job.run_epoch(finish_files=True)
    maintained = MaintainedJob(job, spark)
    assert maintained.rows_read() == maintained.expected(1)
    ends, rounds = time.monotonic() + float(os.environ["SOAK_MINUTES"]) * 60, 0
    while rounds < ROUNDS_MIN or time.monotonic() < ends:
        maintained.run_round(rounds)
        rounds += 1
    job.run_epoch(finish_files=True)
    left_out = [record for record in caplog.records if record.name == "lakestate.files"]
    with capsys.disabled():
        print(
            f"\n{job.published.epoch:,} epochs; beside them {dict(maintained.beside_epochs)}, "
            f"between them {dict(maintained.between_epochs)}; refused by Spark {maintained.refused}, "
            f"epochs tried again {job.failures}, large files left out {len(left_out)}"
        )

    assert warehouse.rows() == maintained.expected(job.published.epoch)
    assert maintained.rows_read() == maintained.expected(job.published.epoch)
    assert set(maintained.between_epochs) == {"rewrite", "manifests", "expire", "column"}
    assert {"expire", "column"} <= set(maintained.beside_epochs)
    # Spark rewrites small files before their large one is finished.
    assert bool(left_out) == (roll is VISIBLE)
    _check_time_travel(maintained, warehouse, has_whole_epochs=roll is VISIBLE)
    _check_pruning(spark, first_row=int(job.rows(job.published.epoch, 0)["row"][0].as_py()))
    _check_added_columns(spark, job)


def _check_time_travel(maintained: MaintainedJob, warehouse: Warehouse, *, has_whole_epochs: bool) -> None:
    references = warehouse.table().refs()
    assert len(maintained.tagged) >= 2
    for tag, rows in maintained.tagged.items():
        snapshot = references[tag].snapshot_id
        assert maintained.rows_read(f"VERSION AS OF {snapshot}") == rows
        assert warehouse.rows(snapshot_id=snapshot) == rows
        if has_whole_epochs:
            assert rows == maintained.expected(len(rows) // (ROWS * maintained.job.parallelism))


def _check_pruning(spark: TableRuntime, first_row: int) -> None:
    """The first row of the newest epoch is in a file of the sink; others may be in files of Spark."""
    everything = spark.files_read(f"SELECT row FROM {NAME}")
    of_country = spark.files_read(f"SELECT row FROM {NAME} WHERE country = 'DE'")
    of_rows = spark.files_read(f"SELECT row FROM {NAME} WHERE row = {first_row}")
    assert 0 < of_country < everything
    assert 0 < of_rows < everything
    assert spark.files_read(f"SELECT row FROM {NAME} WHERE row < 0") == 0


def _check_added_columns(spark: TableRuntime, job: SinkJob) -> None:
    """Rows of before and after read as null in every added column."""
    added = [name for name, *_ in spark.sql(f"DESCRIBE TABLE {NAME}") if name.startswith("note_")]
    assert len(added) >= 2
    are_null = " AND ".join(f"{name} IS NULL" for name in added)
    counted = spark.sql(f"SELECT count(*) FROM {NAME} WHERE {are_null}")
    assert counted == [[job.published.epoch * job.parallelism * ROWS]]
