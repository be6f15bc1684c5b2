"""PostgreSQL as the target of a pipeline on Spark: drivers that are killed, and the example of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.spark.test_pipeline_kills import FedJob, kill_many_times, newest_by_user
from tests.support.repository import ROOT
from tests.support.servers.postgres import PostgresServer

import lakestate as ls
from lakestate.errors import InvalidInputError

pytest.importorskip("pyspark")


class PostgresJob(FedJob):
    """A job that delivers to PostgreSQL, compared by a reader that knows nothing of it."""

    module = "tests.support.spark.postgres_process"

    def __init__(self, folder: Path, seed: int, server: PostgresServer) -> None:
        super().__init__(folder, seed)
        self._server = server
        (folder / "dsn").write_text(server.url)

    def check_result(self) -> None:
        expected = self.expected_rows()
        assert sorted(self._read("kill_log"), key=str) == expected
        named = [row for row in expected if row[0] is not None]
        assert sorted(self._read("kill_newest"), key=str) == newest_by_user(named)
        markers = self._read("lakestate_epochs")
        assert sorted(row[1] for row in markers) == ["log", "newest"]

    def _read(self, table: str) -> list[tuple[Any, ...]]:
        with self._server.connect() as connection:
            return connection.execute(f"SELECT * FROM {table}").fetchall()  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_row_is_lost_or_there_twice_after_killed_drivers(tmp_path: Path, postgres: PostgresServer) -> None:
    job = PostgresJob(tmp_path, 5, postgres)
    try:
        kill_many_times(job, 5, driver_kills=2, worker_kills=0)
    finally:
        job.kill_all()


@pytest.mark.full
def test_the_example_of_the_page_writes_what_the_page_says_again_and_again(
    spark: Any, tmp_path: Path, postgres: PostgresServer
) -> None:
    page = (ROOT / "docs/sinks/postgres.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0].replace("/data/", f"{tmp_path}/")
    program = program.replace("postgresql://shop@db/shop", postgres.url)
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0].splitlines()[1:]
    expected = [tuple(part.strip() for part in line.split("|")) for line in shown]
    for _ in range(2):
        exec(program, {})
        with postgres.connect() as connection:
            found = connection.execute("SELECT * FROM totals ORDER BY 1").fetchall()
        assert [tuple(map(str, row)) for row in found] == expected


@pytest.mark.parametrize(
    "sink",
    [
        ls.ParquetSink("/data/out"),
        ls.JsonLinesSink("/data/out"),
        ls.IcebergSink("shop.totals", catalog="/data/warehouse"),
        ls.DeltaSink("/data/table"),
        ls.PostgresSink("postgresql://db/shop", "totals"),
    ],
    ids=lambda sink: type(sink).__name__,
)
@pytest.mark.parametrize("emit", ["updates", "changes"])
def test_rows_that_change_are_not_appended_unless_you_say_so(
    spark: Any, tmp_path: Path, sink: Any, emit: str
) -> None:
    pipeline = ls.Pipeline("kinds", tmp_path / "checkpoints")
    source = spark.readStream.format("rate").load()
    totals = pipeline.source(source, name="s").key_by("value").aggregate("t", emit=emit, n=ls.count())
    with pytest.raises(InvalidInputError, match=r"sink out cannot take rows that change.*as_log\(\)"):
        totals.sink("out", sink)
    totals.as_log().sink("out", sink)
