"""A Delta table that Delta's own runtime for Spark reads, rewrites and alters while a job writes to it.

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
from tests.support.jars import DELTA
from tests.support.sinks.delta_job import EVERY_EPOCH, DeltaFolder
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows
from tests.support.soak.table_runtime import RefusedError, TableRuntime, delta_settings, open_runtime

from lakestate.sinks import Roll

pytestmark = pytest.mark.soak

ROWS = 200
ROUNDS_MIN = 4
PAUSE_S = 0.2
"""Between epochs beside a statement. Spark starts its commit anew after each one of ours, so that a job that
commits without a pause lets it wait for long: `OPTIMIZE` took ten times longer beside 220 epochs."""
VERSIONS_MAX = 8
"""Their rows are kept in memory."""
VISIBLE = Roll(bytes="60KB", interval=None, visible="0 seconds")


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[TableRuntime]:
    with open_runtime(DELTA, delta_settings(), tmp_path / "spark.log") as runtime:
        yield runtime


@dataclass
class OptimizedJob:
    """A job, and what Spark did to its table meanwhile."""

    folder: DeltaFolder
    job: SinkJob
    spark: TableRuntime
    beside_epochs: Counter[str] = field(default_factory=Counter)
    """How many epochs were written while statements of a kind ran that Spark carried out."""
    refused: list[str] = field(default_factory=list)
    seen: dict[int, list[int]] = field(default_factory=dict)
    """The rows that Spark read in a version when it was new."""

    @property
    def name(self) -> str:
        return f"delta.`{self.folder.root}`"

    def run_round(self, number: int) -> None:
        """Odd rounds wait for each statement between two epochs, even ones write while it runs."""
        statements = {
            "optimize": f"OPTIMIZE {self.name}",
            "column": f"ALTER TABLE {self.name} ADD COLUMN note_{number} STRING",
        }
        for what, statement in statements.items():
            self.job.run_to(self.job.published.epoch + 3, finish_files=False)
            if number % 2 == 0:
                self.run_beside(what, statement)
            else:
                self.spark.sql(statement)
        self.job.run_epoch(finish_files=True)
        assert self.rows_read() == self.folder.rows() == self.expected()
        if len(self.seen) < VERSIONS_MAX:
            self.seen[self.folder.table().version()] = self.expected()

    def run_beside(self, what: str, statement: str) -> None:
        before = self.job.published.epoch
        self.spark.begin(statement)
        while not self.spark.is_done(PAUSE_S):
            self.job.run_epoch()
        try:
            self.spark.result()
            self.beside_epochs[what] += self.job.published.epoch - before
        except RefusedError as refusal:
            self.refused.append(f"{what}: {refusal}")

    def rows_read(self, version: int | None = None) -> list[int]:
        at = "" if version is None else f" VERSION AS OF {version}"
        return sorted(row for (row,) in self.spark.sql(f"SELECT row FROM {self.name}{at}"))

    def expected(self) -> list[int]:
        return expected_rows(self.job.rows, self.job.published.epoch, self.job.parallelism)


@pytest.mark.parametrize("roll", [EVERY_EPOCH, VISIBLE], ids=["every epoch", "visible"])
def test_nothing_is_lost_or_double_in_a_table_that_spark_optimizes(
    roll: Roll,
    tmp_path: Path,
    spark: TableRuntime,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = DeltaFolder(tmp_path / "table")
    job = folder.job(numbered_rows(ROWS), roll=roll, partition_by=["country"])
    optimized = OptimizedJob(folder, job, spark)
    job.run_epoch(finish_files=True)
    assert optimized.rows_read() == optimized.expected()
    ends, rounds = time.monotonic() + float(os.environ["SOAK_MINUTES"]) * 60, 0
    while rounds < ROUNDS_MIN or time.monotonic() < ends:
        optimized.run_round(rounds)
        rounds += 1
    left_out = [record for record in caplog.records if record.name == "lakestate.files"]
    done = Counter(each["operation"] for each in folder.table().history())
    with capsys.disabled():
        print(
            f"\n{job.published.epoch:,} epochs, beside Spark's statements {dict(optimized.beside_epochs)}; "
            f"refused by Spark {optimized.refused}, epochs tried again {job.failures}, "
            f"large files left out {len(left_out)}; {dict(done)}"
        )

    assert min(done["OPTIMIZE"], done["ADD COLUMNS"]) > 0
    if roll is VISIBLE:
        # Spark rewrites small files before their large one is finished, or is refused because it is.
        assert left_out
        assert all("ConcurrentDelete" in refusal for refusal in optimized.refused)
    else:
        assert (left_out, optimized.refused) == ([], [])
        assert optimized.beside_epochs["optimize"] > 0
    # Spark's time travel finds every version as it was.
    assert {version: optimized.rows_read(version) for version in optimized.seen} == optimized.seen
    every, some = (
        spark.files_read(f"SELECT * FROM {optimized.name} {where}") for where in ("", "WHERE country = 'DE'")
    )
    assert 0 < some < every
