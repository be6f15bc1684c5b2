"""What a shell completes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from click.shell_completion import ShellComplete
from tests.support.command_line import run_command

from lakestate.cli import completion
from lakestate.cli.app import app
from lakestate.cli.session import Session


def complete(line: str) -> list[str]:
    *words, begun = line.split(" ")
    shell = ShellComplete(app, {"obj": Session()}, "lakestate", "_LAKESTATE_COMPLETE")
    return [item.value for item in shell.get_completions(words, begun)]


@pytest.fixture
def tagged(state: Path) -> Path:
    assert run_command("tag", "shop", "sale", "2").code == 0
    return state


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("epochs ", ["clicks", "shop"]),
        ("state s", ["shop"]),
        ("state shop p", ["per_user"]),
        ("state shop per_user ", ["totals"]),
        ("history clicks pages r", ["rates"]),
        ("show shop ", ["newest", "sale", "4", "3", "2", "1"]),
        ("rollback shop ", ["newest", "sale", "4", "3", "2", "1"]),
        ("diff shop 1 s", ["sale"]),
        ("state shop per_user totals --epoch n", ["newest"]),
        ("du clicks --epoch 1 --keys pages.i", ["pages.items"]),
        ("untag shop ", ["sale"]),
        ("tag shop ", []),
        ("du clicks --keys pages.i", ["pages.items"]),
        ("diff clicks 1 --table pages.s", ["pages.seen"]),
        ("fork shop trial --drop per", ["per_user"]),
    ],
)
def test_names_are_completed(tagged: Path, line: str, names: list[str]) -> None:
    assert complete(line) == names


def test_the_place_that_is_named_is_looked_at(state: Path, tmp_path: Path) -> None:
    assert complete(f"--at {tmp_path}/nothing epochs ") == []
    assert complete(f"epochs --at {tmp_path}/nothing ") == []
    assert complete(f"--at {tmp_path}/nothing epochs --at {state} s") == ["shop"]


@pytest.mark.parametrize("line", ["--at nowhere epochs ", "state nojob ", "state shop nop ", "untag nojob "])
def test_what_is_not_there_completes_to_nothing(
    state: Path, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert complete(line) == []
    assert capfd.readouterr() == ("", "")


def test_no_more_names_are_offered_than_somebody_reads(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "NAMES_MAX", 1)
    assert complete("epochs ") == ["clicks"]
    assert complete("epochs s") == ["shop"]
    monkeypatch.setattr(completion, "NAMES_MAX", 100)
    monkeypatch.setattr(completion, "EPOCHS_MAX", 2)
    assert complete("show shop ") == ["newest", "4", "3"]


@pytest.fixture
def silent_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A store that does not answer before the end of the test."""
    answer, ended = Event(), list[str]()

    def wait_for_answer(*arguments: object) -> list[str]:
        answer.wait(60)
        return ["late"]

    monkeypatch.setattr(completion, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr("lakestate.inspection.checkpoint.Checkpoint.job_names", wait_for_answer)
    monkeypatch.setattr(completion, "end_process", lambda: ended.append("ended"))
    yield ended
    answer.set()


def test_nobody_waits_for_a_store_that_does_not_answer(state: Path, silent_store: list[str]) -> None:
    assert complete("epochs ") == []
    assert silent_store == ["ended"]


def test_the_command_completes_for_a_shell(state: Path) -> None:
    words = {"COMP_WORDS": "lakestate state shop ", "COMP_CWORD": "3", "_LAKESTATE_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "lakestate.cli"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("plain,out\nplain,per_user\n", "")
