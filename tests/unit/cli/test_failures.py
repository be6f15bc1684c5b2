"""How the command fails: one line, a hint, an exit code, and never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.command_line import run_command
from tests.support.repository import ROOT

import lakestate.errors as errors
from lakestate.cli.failures import MEANINGS, ExitCode, exit_code_of
from lakestate.cli.reference import reference
from lakestate.cli.session import Session


def test_every_error_has_an_exit_code_that_is_explained() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert {exit_code_of(kind("…")) for kind in kinds} <= set(MEANINGS)
    assert set(MEANINGS) == set(ExitCode)
    assert exit_code_of(errors.MisplacedObjectError("…")) is ExitCode.DAMAGED
    assert exit_code_of(errors.FencedError("…")) is ExitCode.REFUSED
    assert exit_code_of(errors.OutcomeUnknownError("…")) is ExitCode.UNAVAILABLE


def test_the_page_about_the_command_is_its_own_help() -> None:
    """Made by `python -m lakestate.cli.reference > docs/cli.md`."""
    assert (ROOT / "docs/cli.md").read_text() == reference()


def test_an_error_shows_a_traceback_only_if_asked(state: Path) -> None:
    quiet, loud = run_command("tags", "shp"), run_command("tags", "shp", "--debug")
    assert quiet.err.splitlines()[1] == "hint: did you mean shop?"
    assert len(quiet.err.splitlines()) == 2
    assert "Traceback" in loud.err
    assert loud.code == quiet.code == ExitCode.NOT_FOUND


def test_an_error_that_nobody_expected_is_one_line_too(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Session, job_id: str) -> None:
        raise RuntimeError("on fire\nin two lines")

    monkeypatch.setattr(Session, "job", fail)
    answer = run_command("tags", "shop")
    assert answer.code == ExitCode.BUG
    assert answer.err == (
        "error: RuntimeError: on fire in two lines\nhint: run it again with --debug to see where\n"
    )


def test_without_its_libraries_the_command_names_the_extra() -> None:
    script = "import sys; sys.modules['click'] = None; from lakestate.cli.main import main; main(['jobs'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.MISSING_EXTRA
    assert done.stderr == (
        "error: the lakestate command needs click, which is not installed\n"
        'hint: install it with: pip install "lakestate[cli]"\n'
    )


@pytest.mark.slow
def test_the_module_is_the_command(state: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lakestate.cli", "tags", "shop", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_help_is_not_an_error() -> None:
    answer = run_command("epochs", "--help")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Usage: lakestate epochs [OPTIONS] JOB\n")
