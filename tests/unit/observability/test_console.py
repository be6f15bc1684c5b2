"""A query shows its progress to people, and only to them."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import lakestate as ls
from lakestate.observability import console
from lakestate.observability.console import PROGRESS, with_progress
from lakestate.observability.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Counts:
    def on_epoch(self, progress: Any) -> None: ...


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a terminal and without settings."""
    monkeypatch.delenv(PROGRESS, raising=False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "IPython", raising=False)


def shows(wanted: bool | None = None) -> bool:
    found = with_progress([COUNTS], wanted)
    assert found[0] is COUNTS
    return [type(each) for each in found[1:]] == [ProgressLine]


COUNTS = Counts()


def test_a_program_without_a_terminal_is_silent() -> None:
    assert not shows()
    assert shows(wanted=True)


def test_a_process_without_standard_error_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not shows()


def test_a_terminal_shows_progress_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert shows()
    assert not shows(wanted=False)
    monkeypatch.setenv(PROGRESS, "0")
    assert not shows()


@pytest.mark.parametrize(("kernel", "is_shown"), [(SimpleNamespace(), True), (None, False)])
def test_a_notebook_shows_progress(monkeypatch: pytest.MonkeyPatch, kernel: Any, is_shown: bool) -> None:
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert shows() is is_shown


def test_the_environment_can_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRESS, "on")
    assert shows()
    monkeypatch.setenv(PROGRESS, "maybe")
    with pytest.raises(ls.InvalidInputError, match="LAKESTATE_PROGRESS; found 'maybe'"):
        shows()


def test_a_line_of_the_users_own_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ProgressLine(io.StringIO())
    assert with_progress([line], True) == (line,)
    assert console.is_watched(Terminal())
