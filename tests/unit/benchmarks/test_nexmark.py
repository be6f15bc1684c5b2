"""Nexmark beside others: nobody is left out silently, and what a run costs is all that it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.nexmark import flink, spark_queries
from benchmarks.nexmark.events import TASKS, Events, write_events
from benchmarks.nexmark.exactness import Answers, Windows, read_changes
from benchmarks.nexmark.usage import measured
from examples.nexmark.job import QUERIES
from tests.support.nexmark.output import count_rows

from lakestate.testing.auctions import AuctionKind

SPIN_S = 0.3
SPIN = f"import time; end = time.process_time() + {SPIN_S}\nwhile time.process_time() < end: pass"


def test_every_query_has_a_form_or_a_reason() -> None:
    in_flink = {file.stem for file in (flink.JOB.parent / "flink").glob("*.sql")}
    assert in_flink | {*flink.CANNOT} == {*QUERIES}
    assert in_flink.isdisjoint(flink.CANNOT)
    assert {*spark_queries.QUERIES} | {*spark_queries.CANNOT} == {*QUERIES}
    assert {*spark_queries.QUERIES}.isdisjoint(spark_queries.CANNOT)


def test_the_process_of_flink_needs_nothing_of_this_repository() -> None:
    imported = set()
    for node in ast.walk(ast.parse(flink.JOB.read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
    assert imported - sys.stdlib_module_names == {"pyflink"}


def test_flink_that_is_not_installed_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink, "PYTHON", tmp_path / "python")
    assert flink.why_unavailable() == "PyFlink is not installed: run scripts/flink-env"
    (tmp_path / "python").touch()
    monkeypatch.setattr(flink, "JARS", tmp_path / "jars" / "flink")
    assert flink.why_unavailable() == "its jars are missing: run scripts/flink-env"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "flink.missing").write_text("Could not transfer\n")
    assert flink.why_unavailable() == "its jars cannot be had: Could not transfer"


ANSWERING = """
import json, sys, time
for line in sys.stdin:
    query = json.loads(line)["query"]
    time.sleep(60 if query == "hangs" else 0)
    print(json.dumps({"error": "no such table"} if query == "fails" else {}), flush=True)
"""


def test_flink_that_fails_or_hangs_is_an_error_and_the_next_query_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.py").write_text(ANSWERING)
    monkeypatch.setattr(flink, "PYTHON", sys.executable)
    monkeypatch.setattr(flink, "JOB", tmp_path / "job.py")
    events = Events(tmp_path, 0, 1, 1)
    with flink.Flink(tmp_path / "flink.log") as running:
        running.run("q0", events, tmp_path)
        with pytest.raises(RuntimeError, match="Flink cannot run fails: no such table"):
            running.run("fails", events, tmp_path)
        first = running.pid
        monkeypatch.setattr(flink, "DEADLINE_S", 0.2)
        with pytest.raises(RuntimeError, match=r"no answer within 0.2 s; see flink.log"):
            running.run("hangs", events, tmp_path)
        monkeypatch.setattr(flink, "DEADLINE_S", 60)
        running.run("q0", events, tmp_path)
        assert running.pid != first
    assert not psutil.pid_exists(running.pid)


def test_both_ways_to_store_events_hold_the_same_rows_in_whole_milliseconds(tmp_path: Path) -> None:
    events = write_events(tmp_path, 1_000, 300, event_us=777)
    for kind in AuctionKind:
        files = sorted(events.epochs_of(kind).glob("*.parquet"))
        assert len(files) == 4 * TASKS
        assert files == sorted(files, key=lambda file: file.stat().st_mtime)
        rows = events.table(kind).sort_by([(name, "ascending") for name in kind.schema.names])
        parts = pq.read_table(events.parts / kind.value)
        assert len(rows) == kind.rows_in(1_000)
        assert rows.equals(parts.sort_by([(name, "ascending") for name in kind.schema.names]))
        assert {time.microsecond % 1000 for time in rows["ts"].to_pylist()} == {0}


def test_rows_that_differ_from_the_answer_are_found(tmp_path: Path) -> None:
    answers = Answers(write_events(tmp_path / "events", 4_000, 2_000, event_us=20_000))
    rows = answers.of("q11", Windows.STAY_OPEN).to_pylist()
    assert answers.difference("q11", count_rows(rows)) is None
    assert "1 of" in (answers.difference("q11", count_rows(rows[1:])) or "")
    assert "are too many" in (answers.difference("q11", count_rows([*rows, rows[0]])) or "")
    assert answers.difference("q11", count_rows(rows), Windows.CLOSE) is not None


def test_changes_add_and_take_back_rows_in_the_types_of_the_answer(tmp_path: Path) -> None:
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("n", pa.decimal128(10, 3)), ("mean", pa.float64())]
    )
    first, last = (
        '{"at": "1970-01-01 00:00:00", "n": 1.500, "mean": 2}',
        '{"at": null, "n": 2.5, "mean": 0.1}',
    )
    created = [f'{{"before": null, "after": {row}, "op": "c"}}' for row in (first, last)]
    (tmp_path / "part-0").write_text("\n".join(created))
    (tmp_path / "part-1").write_text(f'{{"before": {first}, "after": null, "op": "d"}}')
    expected = pa.Table.from_pylist([{"at": None, "n": Decimal("2.500"), "mean": 0.1}], schema)
    assert read_changes(tmp_path, schema) == count_rows(expected.to_pylist())


def test_the_cost_of_a_run_has_that_of_processes_which_end_in_it_without_those_of_others() -> None:
    other = subprocess.Popen([sys.executable, "-c", SPIN + "\ntime.sleep(60)"])
    try:
        with measured(without=other.pid) as usage:
            subprocess.run([sys.executable, "-c", SPIN + "\ntime.sleep(0.2)"], check=True)
        alone = usage.cpu_s
        with measured(other.pid) as usage:
            time.sleep(0.1)
    finally:
        other.kill()
        other.wait()
    assert alone > SPIN_S * 0.9
    assert usage.clock_s >= 0.1
    assert usage.cpu_s < alone
