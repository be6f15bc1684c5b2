"""Outputs that operators commit themselves, on Spark: exactly once, whatever fails and whenever."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import events, read_stream, run_available, write_input

import lakestate as ls
from lakestate.coordinator import commit as commit_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = 20


class SpendInSqlite(ls.Operator):
    """Adds what users spend to a database, so that a commit that is lost or doubled shows."""

    outbox = ls.GlobalKeyedTable(key=str, value=int, two_phase_commit=True)

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows: list[Any] = []

    def process_batch(self, batch, ctx):
        new = pa.table(batch).group_by("user").aggregate([([], "count_all"), ("amount", "sum")])
        self.rows += [[str(row["user"]), row["count_all"], row["amount_sum"]] for row in new.to_pylist()]
        self.outbox.set_commit_data(json.dumps(self.rows).encode())

    def on_commit(self, commit):
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS spend (user TEXT PRIMARY KEY, n INTEGER, amount REAL)")
            db.execute("CREATE TABLE IF NOT EXISTS calls (epoch INTEGER, counts INTEGER)")
            db.execute("BEGIN IMMEDIATE")
            (newest,) = db.execute("SELECT coalesce(max(epoch), 0) FROM calls WHERE counts").fetchone()
            is_new = newest < commit.epoch
            db.execute("INSERT INTO calls VALUES (?, ?)", (commit.epoch, is_new))
            if is_new:
                db.executemany(
                    "INSERT INTO spend VALUES (?, ?, ?) ON CONFLICT (user) "
                    "DO UPDATE SET n = n + excluded.n, amount = amount + excluded.amount",
                    [row for data in commit.data for row in json.loads(data)],
                )
            db.execute("COMMIT")


class Job:
    """Three input files, one in every epoch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.backend = ls.ParquetBackend(f"file://{folder}/checkpoints", cache_dir=folder / "cache")
        self.inputs = [events(number, 100, USERS) for number in range(3)]
        for number, rows in enumerate(self.inputs):
            write_input(folder / "in", number, rows)

    def pipeline(self, operator: ls.Operator | None = None) -> ls.Pipeline:
        pipeline = ls.Pipeline("spend", self.backend, parallelism=2)
        keyed = pipeline.source(read_stream(self.spark, self.folder / "in")).key_by("user")
        keyed.apply("spend", operator or SpendInSqlite(str(self.folder / "spend.db")))
        return pipeline

    def found(self) -> dict[str, tuple[int, float]]:
        with closing(sqlite3.connect(self.folder / "spend.db")) as db:
            return {user: (n, amount) for user, n, amount in db.execute("SELECT * FROM spend")}

    def calls(self) -> list[tuple[int, int]]:
        with closing(sqlite3.connect(self.folder / "spend.db")) as db:
            return db.execute("SELECT * FROM calls ORDER BY rowid").fetchall()

    def expected(self) -> dict[str, tuple[int, float]]:
        found: dict[str, tuple[int, float]] = {}
        for row in pa.concat_tables(self.inputs).to_pylist():
            n, amount = found.get(str(row["user"]), (0, 0.0))
            found[str(row["user"])] = (n + 1, amount + row["amount"])
        return found


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


class FailsOnce(SpendInSqlite):
    """Raises in its second epoch, before or after it has changed the database."""

    def __init__(self, path: str, marker: Path, *, after: bool) -> None:
        super().__init__(path)
        self.marker = marker
        self.after = after

    def on_commit(self, commit):
        if commit.epoch != 2 or self.marker.exists():
            return super().on_commit(commit)
        self.marker.touch()
        if self.after:
            super().on_commit(commit)
        raise ConnectionError("the database is away")


@pytest.mark.parametrize(
    ("after", "calls"),
    [
        pytest.param(False, [(1, 1), (2, 1), (3, 1)], id="before the change"),
        pytest.param(True, [(1, 1), (2, 1), (2, 0), (3, 1)], id="after the change"),
    ],
)
def test_an_on_commit_that_raises_ends_the_query_and_the_next_start_makes_it_good(
    job: Job, after: bool, calls: list[tuple[int, int]]
) -> None:
    operator = FailsOnce(str(job.folder / "spend.db"), job.folder / "failed", after=after)
    query = job.pipeline(operator).start(trigger={"availableNow": True})
    with pytest.raises(
        ls.OperatorError,
        match="on_commit raised ConnectionError: operator spend of job spend, epoch 2; found the database",
    ):
        query.awaitTermination(120)
    query.stop()
    assert job.backend.load_checkpoint_metadata("spend").epoch == 2
    query = run_available(job.pipeline(operator))
    assert (job.found(), job.calls()) == (job.expected(), calls)
    assert query.lastProgress.durations_ms["commit"] > 0
    assert ls.verify(job.backend, "spend").is_clean


class KilledError(BaseException):
    """In place of a kill of the driver: nothing in the code catches it."""


def test_a_driver_that_is_killed_between_commit_and_marker_is_followed_by_one_that_commits_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., None] = commit_module._write_marker

    def killed(objects: Any, marker: Any) -> None:
        if marker.epoch == 2:
            raise KilledError
        real(objects, marker)

    monkeypatch.setattr(commit_module, "_write_marker", killed)
    query = job.pipeline().start(trigger={"availableNow": True})
    with pytest.raises(KilledError):
        query.awaitTermination(120)
    monkeypatch.undo()
    run_available(job.pipeline())
    assert (job.found(), job.calls()) == (job.expected(), [(1, 1), (2, 1), (2, 0), (3, 1)])


def test_a_pipeline_without_the_operator_whose_epoch_is_not_committed_is_refused(job: Job) -> None:
    operator = FailsOnce(str(job.folder / "spend.db"), job.folder / "failed", after=False)
    query = job.pipeline(operator).start(trigger={"availableNow": True})
    with pytest.raises(ls.OperatorError):
        query.awaitTermination(120)
    query.stop()

    class Other(ls.Operator):
        """In its place."""

        def process_batch(self, batch, ctx):
            """Take the rows."""

    without = ls.Pipeline("spend", job.backend, parallelism=2)
    without.source(read_stream(job.spark, job.folder / "in")).key_by("user").apply("other", Other())
    with pytest.raises(
        ls.InvalidInputError, match="found spend; expected none; start once with them as they were"
    ):
        without.start(trigger={"availableNow": True}, drop=["spend"])
    run_available(job.pipeline(operator))
    run_available(without, drop=["spend"])
    assert job.found() == job.expected()


def test_half_a_declaration_is_refused_before_the_job_is_claimed(job: Job) -> None:
    class NoHook(ls.Operator):
        outbox = ls.GlobalKeyedTable(key=str, value=int, two_phase_commit=True)

    with pytest.raises(ls.InvalidInputError, match="does not define on_commit: operator spend"):
        job.pipeline(NoHook()).start(trigger={"availableNow": True})
    assert job.backend.newest_checkpoint("spend") is None
    assert not (job.folder / "checkpoints" / "spend").exists()
