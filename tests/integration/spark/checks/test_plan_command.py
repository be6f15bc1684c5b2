"""`lakestate plan`: what a new version of the code would do to stored state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.spark.checks import test_pipeline_dry_run as versions
from tests.support.command_line import run_command
from tests.support.repository import ROOT
from tests.support.spark.pipelines import events, run_available, write_input
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.cli import code
from lakestate.cli.failures import ExitCode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> versions.Jobs:
    monkeypatch.setenv("LAKESTATE_AT", str(tmp_path / "checkpoints"))
    made = versions.Jobs(spark, tmp_path)
    write_input(tmp_path / "in", 0, events(0, 100))
    run_available(made.pipeline(Totals()))
    return made


def plan(monkeypatch: pytest.MonkeyPatch, pipeline: ls.Pipeline, *options: str) -> tuple[int, Any]:
    monkeypatch.setattr(code, "import_module", lambda name: type("module", (), {"pipeline": pipeline}))
    answer = run_command("plan", "shop", "shop_jobs:pipeline", *options, "--output", "json")
    return answer.code, json.loads(answer.out or "null")


def outcomes(shown: Any) -> list[tuple[str, str, str]]:
    return [(row["operator"], row["table"], row["outcome"]) for row in shown["tables"]]


def test_a_plan_says_what_becomes_of_each_table(jobs: versions.Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    status, same = plan(monkeypatch, jobs.pipeline(Totals()))
    assert (status, same["can_start"], outcomes(same)) == (0, True, [("totals", "totals", "unchanged")])

    status, upgraded = plan(monkeypatch, jobs.pipeline(versions.Upgraded()))
    assert (status, upgraded["can_start"], outcomes(upgraded)) == (
        0,
        True,
        [("totals", "totals", "migrated")],
    )
    (row,) = upgraded["tables"]
    assert (row["stored"], row["declared"], upgraded["migrated_files"]) == (1, 2, 2)
    assert row["rewritten_bytes"] == row["state_bytes"] > 0

    status, broken = plan(monkeypatch, jobs.pipeline(versions.Broken()))
    assert (status, broken["can_start"]) == (ExitCode.FOUND, False)
    assert "no tier" in broken["problems"][0]["problem"]

    status, renamed = plan(monkeypatch, jobs.pipeline(versions.Renamed()))
    assert (status, renamed["can_start"]) == (ExitCode.FOUND, False)
    assert outcomes(renamed) == [("totals", "sums", "new"), ("totals", "totals", "refused")]

    status, dropped = plan(monkeypatch, jobs.pipeline(versions.Renamed()), "--drop", "totals.totals")
    assert (status, dropped["can_start"]) == (0, True)
    assert outcomes(dropped) == [("totals", "sums", "new"), ("totals", "totals", "dropped")]


def test_doctor_runs_a_task_in_a_python_worker(jobs: versions.Jobs) -> None:
    answer = run_command("doctor", "--spark", "--output", "json")
    found = {row["check"]: row for row in json.loads(answer.out)}
    assert found["spark"]["verdict"] == "ok", found["spark"]
    assert f"lakestate {ls.__version__}" in found["spark"]["detail"]
    assert answer.code == 0


def test_the_plan_of_the_runbook_runs(jobs: versions.Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        line
        for line in (ROOT / "docs/runbook.md").read_text().splitlines()
        if line.startswith("lakestate plan ")
    ]
    pipeline = jobs.pipeline(Totals())
    monkeypatch.setattr(code, "import_module", lambda name: type("module", (), {"pipeline": pipeline}))
    assert [run_command(*line.split()[1:]).code for line in lines] == [0, 0]
