"""A run keeps what it has, continues after a failure, and says in the end that there was one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

pytest.importorskip("matplotlib")
from benchmarks import __main__ as runner
from benchmarks.core import Benchmark, Contender, Question, Run, Scale
from benchmarks.core import child as child_process
from benchmarks.core.page import results_page
from benchmarks.core.progress import Estimate, ProgressBar
from benchmarks.core.result import load_result

BENCHMARK = Benchmark("x", "X", "", (Contender("a", ""),), (Question("q", "Q", "ms"),), seconds=(1, 1))


@pytest.fixture
def pipe() -> Iterator[int]:
    reading, writing = os.pipe()
    yield writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def call_child(
    tmp_path: Path, pipe: int, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Run], None]], int]:
    def call(measure: Callable[[Run], None]) -> int:
        module = SimpleNamespace(BENCHMARK=BENCHMARK, measure=measure)
        monkeypatch.setattr(child_process, "load_module", lambda name: module)
        return child_process.main("x", "quick", tmp_path, pipe)

    return call


def fail(number: int) -> list[float]:
    raise OSError("disk full")


def fail_halfway(run: Run) -> None:
    run.record("q", "a", [2])
    fail(0)


def test_what_was_measured_is_stored_when_all_is_done(
    call_child: Callable[[Callable[[Run], None]], int], tmp_path: Path
) -> None:
    assert call_child(lambda run: run.record("q", "a", [1, 2, 3])) == 0
    stored = load_result(tmp_path, "x")
    assert stored is not None
    assert (stored.scale, stored.measurements[0].values) == ("quick", (1, 2, 3))


def test_a_contender_that_fails_is_stored_and_makes_the_run_fail(
    call_child: Callable[[Callable[[Run], None]], int], tmp_path: Path
) -> None:
    code = call_child(lambda run: run.compare("q", {"a": fail}, repetitions=1))
    assert code == child_process.CONTENDER_FAILED
    stored = load_result(tmp_path, "x")
    assert stored is not None
    assert stored.absences[0].reason == "failed: OSError: disk full"


def test_a_benchmark_that_fails_leaves_the_last_result(
    call_child: Callable[[Callable[[Run], None]], int], tmp_path: Path
) -> None:
    call_child(lambda run: run.record("q", "a", [1]))
    last = load_result(tmp_path, "x")
    assert call_child(fail_halfway) == child_process.FAILED
    kept = load_result(tmp_path, "x")
    assert last is not None
    assert kept is not None
    assert kept.later_failure.endswith(", OSError: disk full")
    assert replace(kept, later_failure="") == last
    assert call_child(lambda run: run.record("q", "a", [3])) == 0
    newest = load_result(tmp_path, "x")
    assert newest is not None
    assert (newest.measurements[0].values, newest.later_failure) == ((3,), "")


def test_what_was_measured_before_a_failure_is_better_than_nothing(
    call_child: Callable[[Callable[[Run], None]], int], tmp_path: Path
) -> None:
    assert call_child(fail_halfway) == child_process.FAILED
    stored = load_result(tmp_path, "x")
    assert stored is not None
    assert (stored.measurements[0].values, stored.failure) == ((2,), "OSError: disk full")


def test_a_benchmark_that_measured_nothing_says_why(
    call_child: Callable[[Callable[[Run], None]], int], tmp_path: Path
) -> None:
    assert call_child(lambda run: fail(0) and None) == child_process.FAILED
    stored = load_result(tmp_path, "x")
    assert stored is not None
    assert (stored.measurements, stored.failure) == ((), "OSError: disk full")
    page = results_page([(BENCHMARK, stored)])
    assert "**The run failed before its end**, and the rest is missing: OSError: disk full" in page


def test_a_benchmark_that_takes_too_long_keeps_what_it_has(
    call_child: Callable[[Callable[[Run], None]], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "DEADLINE_S", 1)

    def hang(number: int) -> list[float]:
        time.sleep(60)
        return [1]

    def hang_halfway(run: Run) -> None:
        run.record("q", "a", [2])
        run.compare("q", {"a": hang}, repetitions=1)

    assert call_child(hang_halfway) == child_process.FAILED
    stored = load_result(tmp_path, "x")
    assert stored is not None
    assert (stored.measurements[0].values, stored.absences) == ((2,), ())
    assert stored.failure.startswith("OutOfTime: it had not ended after")


def test_the_others_run_after_one_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def run_one(name: str, scale: Scale, folder: Path, bar: ProgressBar) -> int:
        called.append(name)
        (tmp_path / f"{name}.log").write_text("said something")
        return 1 if name == "b" else 0

    monkeypatch.setattr(runner, "run_one", run_one)
    monkeypatch.setattr(runner, "LOGS", tmp_path)
    monkeypatch.setattr(runner, "QUICK", tmp_path)
    assert runner.run_all(["a", "b", "c"], {}, Scale.QUICK) == ["b"]
    assert called == ["a", "b", "c"]
    stored = load_result(tmp_path, "b")
    assert stored is not None
    assert stored.failure == "its process ended with code 1"
    assert load_result(tmp_path, "c") is None


def test_a_benchmark_that_hangs_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)'])"
    monkeypatch.setattr(runner, "child_command", lambda *given: [sys.executable, "-c", started])
    monkeypatch.setattr(runner, "LOGS", tmp_path)
    monkeypatch.setattr(runner, "DEADLINE_S", 0.5)
    bar = ProgressBar(Estimate({"x": 1}), Console())
    assert runner.run_one("x", Scale.QUICK, tmp_path, bar) == -signal.SIGKILL


def test_an_unknown_name_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["nonsense"]) == 2
    assert "no benchmark named nonsense; there are: " in capsys.readouterr().err
