"""The simulator's command line: what it says to wrong input, and that it never says success to it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.simulation.mutations import forget_an_interrupted_commit
from tests.support import tiers_plugin
from tests.support.repository import ROOT

from lakestate.errors import InvalidInputError
from lakestate.testing.simulation import FaultKind, RunResult, Scenario, __main__, run_seed
from lakestate.testing.simulation.__main__ import main
from lakestate.testing.simulation.campaigns import sweep
from lakestate.testing.simulation.campaigns.exhaustive import SEED, SMALL
from lakestate.testing.simulation.campaigns.sweep import (
    Journal,
    Sweep,
    Task,
    code_digest,
    package_digest,
    run_tasks,
)
from lakestate.testing.simulation.faults import CallId, format_script, parse_script
from lakestate.testing.simulation.promises import BrokenPromiseError, Promise
from lakestate.testing.simulation.random_streams import random_stream


@pytest.fixture(autouse=True)
def _loggers_as_before(caplog: pytest.LogCaptureFixture) -> None:
    """The command makes the loggers silent; said here, they are not silent for the tests after these."""
    caplog.set_level("CRITICAL", "lakestate")


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says about input that it does not take."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    return told.err.splitlines()[-1]


class TestShrink:
    def test_a_seed_that_does_not_fail_has_nothing_to_shrink(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["replay", "1", "--shrink"]) == 0
        assert capsys.readouterr().out == "seed 1 keeps every promise: there is nothing to shrink\n"

    def test_faults_that_did_not_strike_are_reported_here_too(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["replay", "1", "--shrink", "--faults", "zz:9999=late"]) == 2
        assert capsys.readouterr().out.splitlines() == [
            "seed 1 keeps every promise: there is nothing to shrink",
            "zz:9999=late did not strike: there was no such call",
        ]


class TestFaults:
    @pytest.mark.parametrize(
        "item", ["d1:31=nonsense", "foo", "d1:x=late", "d1:0=late", "d1:-1=late", ":3=late", "d1:3", "d1:3="]
    )
    def test_what_is_not_a_fault_is_refused_with_the_form_and_the_kinds(
        self, item: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = refused(["replay", "1", "--faults", f"d1:2=nap,{item}"], capsys)
        assert f"error: not a fault: {item}; expected actor:call=kind" in told
        assert all(fault.name.lower() in told for fault in FaultKind)

    def test_two_faults_at_one_call_are_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        told = refused(["replay", "1", "--faults", "d1:2=nap,d1:2=late"], capsys)
        assert "error: two faults at one call: d1:2" in told

    def test_a_script_is_printed_and_read_again(self) -> None:
        script = {CallId(f"d1e{number}o0x1", number): fault for number, fault in enumerate(FaultKind, 1)}
        assert parse_script(format_script(script)) == script
        assert parse_script("") == {}

    def test_faults_that_do_not_strike_are_reported_and_are_not_a_success(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        calls = run_seed(1, script={}).calls
        read = next(call for call, operation in calls.items() if not operation.writes)
        write = next(call for call, operation in calls.items() if operation.writes)
        faults = f"zz:9999=late,{read}=late,{write}=nap"
        assert main(["replay", "1", "--faults", faults]) == 2
        told = [line for line in capsys.readouterr().out.splitlines() if "did not strike" in line]
        assert told == [
            f"{read}=late did not strike: it cannot at a {calls[read].value}",
            "zz:9999=late did not strike: there was no such call",
        ]

    def test_faults_that_all_strike_are_a_success(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["replay", "1", "--faults", "d1:2=nap"]) == 0
        assert re.fullmatch(
            r"no promise was broken in \d+ store calls", capsys.readouterr().out.splitlines()[-1]
        )

    def test_a_broken_promise_weighs_more_than_a_fault_that_did_not_strike(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        broken = RunResult(1, BrokenPromiseError(Promise.PROGRESS, "it did not"), 5, 0)
        monkeypatch.setattr(__main__, "run_seed", lambda *_, **__: broken)
        assert main(["replay", "1", "--faults", "d1:3=late"]) == 1
        assert capsys.readouterr().out.splitlines()[1:] == [
            "the job makes progress: it did not",
            "d1:3=late did not strike: there was no such call",
        ]


class TestSettings:
    @pytest.mark.parametrize(
        ("setting", "told"),
        [
            (
                "row=3",
                "no such setting: row; expected absorbs, change_readers, commits, compaction, delivers, ",
            ),
            ("rows", "not a value of this setting: rows; found nothing; expected a whole number from 1 to "),
            ("rows=-1", "not a value of this setting: rows; found -1; expected a whole number from 1 to "),
            ("rows=2.5", "not a value of this setting: rows; found 2.5"),
            ("rows=True", "not a value of this setting: rows; found True"),
            ("rows='6'", "not a value of this setting: rows; found '6'"),
            ("rows={[]: 1}", "not a value of this setting: rows; found {[]: 1}"),
            ("keep_epochs=0", "not a value of this setting: keep_epochs; found 0; expected a whole number"),
            ("rows_per_epoch=0", "not a value of this setting: rows_per_epoch; found 0"),
            ("page_size=0", "not a value of this setting: page_size; found 0"),
            ("part_bytes=0", "not a value of this setting: part_bytes; found 0"),
            ("roll_bytes=0", "not a value of this setting: roll_bytes; found 0"),
            ("sinks=3", "not a value of this setting: sinks; found 3; expected a whole number from 0 to 2 "),
            ("parallelism=(0,)", "not a value of this setting: parallelism; found (0,); expected (2, 1) or "),
            ("parallelism=()", "not a value of this setting: parallelism; found ()"),
            ("parallelism=2", "not a value of this setting: parallelism; found 2"),
            ("parallelism=(99999,)", "each a whole number from 1 to 32768 "),
            ("sink_parallelism=0", "expected a whole number from 1 to 32768 or None "),
            (
                "switch_rate=1.5",
                "not a value of this setting: switch_rate; found 1.5; expected a number from 0",
            ),
            ("superseded=-0.1", "not a value of this setting: superseded; found -0.1"),
            ("is_cached=1", "not a value of this setting: is_cached; found 1; expected True or False "),
            ("compaction=eager", "expected one of 'eager', 'partial', 'relaxed', 'none' "),
            ("compaction=[]", "not a value of this setting: compaction; found []"),
        ],
    )
    def test_what_is_not_a_setting_is_refused(
        self, setting: str, told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert told in refused(["replay", "1", "--set", setting], capsys)

    def test_every_scenario_that_can_be_drawn_is_printed_and_read_again(self) -> None:
        for seed in range(300):
            drawn = Scenario.draw(random_stream(seed, "scenario"))
            for other in (Scenario(), Scenario.draw(random_stream(seed + 1, "scenario"))):
                again = other
                for change in drawn.changes_from(other):
                    again = again.with_setting(change)
                assert again.changes_from(drawn) == []


class TestNumbers:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["soak", "--seeds", "0"],
            ["soak", "--seeds", "-3"],
            ["soak", "--seeds", "many"],
            ["soak", "--seeds", "1", "--processes", "0"],
            ["exhaustive", "--processes", "-1"],
            ["exhaustive", "--pairs", "--share", "0"],
        ],
    )
    def test_none_or_less_than_none_is_refused(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = refused(arguments, capsys)
        assert told.endswith(
            f"error: argument {arguments[-2]}: {arguments[-1]!r} is not a positive whole number"
        )


class TestJournal:
    @pytest.mark.parametrize(
        "content",
        [
            b"figures of last week\n",
            b"\xff\xfe\n",
            b"[]\n",
            b'{"seeds": [1]}\n',
            b'{"seeds": ["\xff"]}\n',
            b"\n",
        ],
    )
    def test_a_file_that_is_not_a_journal_is_refused_and_left_as_it_is(
        self, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "notes"
        path.write_bytes(content)
        told = refused(["soak", "--seeds", "1", "--journal", str(path)], capsys)
        assert f"error: not a journal of a sweep: {path}, line 1; found " in told
        assert "or name another file" in told
        assert path.read_bytes() == content

    def test_a_file_that_cannot_be_written_is_refused_before_anything_is_run(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for path in (tmp_path, tmp_path / "absent" / "journal"):
            assert str(path) in refused(["soak", "--seeds", "1", "--journal", str(path)], capsys)

    def test_figures_of_other_code_are_not_added_to(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "figures"
        Journal(path).add([Task(0)], Sweep(1, 100, 2))
        assert Journal(path).total == Sweep(1, 100, 2)
        monkeypatch.setattr(sweep, "package_digest", lambda: "other")
        told = refused(["soak", "--seeds", "1", "--journal", str(path)], capsys)
        found = f"found code {package_digest()} in line 1; expected code other"
        assert f"error: the journal is of other code: {path}; {found}" in told
        assert "name another file, or remove this one" in told

    def test_figures_that_do_not_say_of_which_code_they_are_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "figures"
        path.write_text('{"seeds":[0],"steps":1,"crashes":0,"counts":{},"failed":[],"cpu_s":0.1}\n')
        with pytest.raises(InvalidInputError, match=r"of other code: .*; found code unknown in line 1"):
            Journal(path)

    def test_the_code_is_every_python_file_by_name_and_content(self, tmp_path: Path) -> None:
        inner = tmp_path / "inner"
        inner.mkdir()
        (inner / "one.py").write_text("x = 1\n")
        digests = [code_digest(tmp_path)]
        (inner / "notes.txt").write_text("not code")
        assert code_digest(tmp_path) == digests[0]
        (inner / "one.py").write_text("x = 2\n")
        digests.append(code_digest(tmp_path))
        (inner / "one.py").rename(inner / "two.py")
        digests.append(code_digest(tmp_path))
        assert len(set(digests)) == 3


class TestTold:
    def test_a_sweep_of_seeds_counts_seeds_and_a_sweep_of_faults_counts_runs(self) -> None:
        assert run_tasks([Task(0), Task(1)]).summary.startswith("2 seeds, ")
        call = CallId("d1", 2)
        scripted = run_tasks([Task(SEED, SMALL, {call: fault}) for fault in (FaultKind.NAP, FaultKind.STALL)])
        assert scripted.summary.startswith("2 runs, ")

    def test_every_failure_that_is_listed_has_the_command_that_repeats_it(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        failing = crashes_after_epochs()
        forget_an_interrupted_commit(monkeypatch)
        # Other processes would not have the mutation.
        monkeypatch.setattr(__main__, "sweep", lambda tasks, **_: run_tasks(list(tasks)))
        monkeypatch.setattr(__main__, "single_faults", lambda _: iter(failing))
        assert main(["exhaustive"]) == 1
        listed, smallest = capsys.readouterr().out.split("\nthe first of them in its smallest form:\n")
        assert "CallId" not in listed
        assert "FaultKind" not in listed
        commands = re.findall(
            r"^  replay: python -m lakestate\.testing\.simulation (.*)$", listed, re.MULTILINE
        )
        assert len(commands) == len(failing) == 2
        for command, task in zip(commands, failing, strict=True):
            result = run_seed(task.seed, scenario=task.scenario, script=task.script, traced=True)
            assert main(shlex.split(command)) == 1
            assert capsys.readouterr().out.splitlines() == [*map(str, result.trace), str(result.violation)]
        assert "replay: python -m" in smallest

    def test_a_failing_seed_of_a_soak_has_its_command_too(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        failed = Sweep(3, failed=[(Task(4), "a broken promise"), (Task(5), "another")])
        monkeypatch.setattr(__main__, "sweep", lambda *_, **__: failed)
        monkeypatch.setattr(__main__, "shrink", lambda *_: "small")
        assert main(["soak", "--seeds", "3"]) == 1
        assert capsys.readouterr().out.splitlines()[3:] == [
            "seed 4: a broken promise",
            "  replay: python -m lakestate.testing.simulation replay 4",
            "seed 5: another",
            "  replay: python -m lakestate.testing.simulation replay 5",
            "",
            "the first of them in its smallest form:",
            "small",
        ]


def crashes_after_epochs() -> list[Task]:
    """The last two epochs, each published by a driver that crashes before it commits the output."""
    trace = run_seed(SEED, scenario=SMALL, script={}, traced=True).trace
    calls = [event.text.split(maxsplit=1)[1] for event in trace if event.text.split()[:1] == ["d1"]]
    numbers = [number for number, call in enumerate(calls, 1) if call.startswith("create job/epochs/")]
    return [Task(SEED, SMALL, {CallId("d1", number): FaultKind.CRASH_AFTER}) for number in numbers[-2:]]


class TestSoakPlugin:
    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("SEEDS", "a,b", "SEEDS=a,b is not a list of seeds, as in SEEDS=7,8"),
            ("SEEDS", ",", "SEEDS=, is not a list of seeds, as in SEEDS=7,8"),
            ("SOAK_MINUTES", "abc", "SOAK_MINUTES=abc is not a number of minutes above 0"),
            ("SOAK_MINUTES", "0", "SOAK_MINUTES=0 is not a number of minutes above 0"),
            ("SOAK_MINUTES", "nan", "SOAK_MINUTES=nan is not a number of minutes above 0"),
        ],
    )
    def test_a_wrong_environment_is_refused(
        self, name: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(pytest.UsageError) as refusal:
            configured(monkeypatch, {name: value})
        assert str(refusal.value) == told

    def test_a_right_environment_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for given in ({}, {"SEEDS": "102,"}, {"SEEDS": "7,8"}, {"SEEDS": "", "SOAK_MINUTES": "0.5"}):
            configured(monkeypatch, given)

    def test_it_is_refused_once_before_any_test(self) -> None:
        command = [sys.executable, "-m", "pytest", "--soak", "-m", "soak", "-p", "no:cacheprovider", __file__]
        given = os.environ | {"SEEDS": "a,b"}
        ran = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (pytest.ExitCode.USAGE_ERROR, "")
        assert ran.stderr.split("\n") == ["ERROR: SEEDS=a,b is not a list of seeds, as in SEEDS=7,8", "", ""]


class Soak:
    """The part of pytest's configuration that the plugin asks for."""

    def getoption(self, name: str) -> bool:
        return name == "--soak"

    def addinivalue_line(self, name: str, line: str) -> None:
        pass


def configured(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """The plugin in a soak with nothing else in the environment."""
    with monkeypatch.context() as patch:
        # Set first, so that what the plugin sets is taken back too.
        for name in ("SEEDS", "SOAK_MINUTES"):
            patch.setenv(name, "")
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        tiers_plugin.pytest_configure(Soak())
