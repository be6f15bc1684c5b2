"""What only people see: colour and progress, on a terminal and nowhere else."""

from __future__ import annotations

from io import StringIO
from threading import Event

import pytest
from rich.console import Console

from lakestate.cli import waiting as module
from lakestate.cli.output import Form, Listing, Report, make_output
from lakestate.cli.waiting import Waiting


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


LISTING = Listing(("name", "n"), [("a", 1)])


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def shown(stream: StringIO) -> str:
    output = make_output(Form.TABLE, stream)
    output.show_listing(LISTING)
    output.show_report(Report({"job": "shop"}, {"rows": LISTING}))
    return stream.getvalue()


def test_a_terminal_gets_colour_and_a_file_does_not() -> None:
    assert "\x1b[1m" in shown(Terminal())
    assert (
        shown(StringIO()) == "name   n\n────────\na      1\njob  shop\n\nrows\nname   n\n────────\na      1\n"
    )


def test_rows_of_state_are_shown_as_they_are() -> None:
    stream = StringIO()
    make_output(Form.TABLE, stream).show_listing(Listing(("user_id", "n"), [(1234567, 1)], is_data=True))
    assert stream.getvalue() == "user_id   n\n───────────\n1234567   1\n"


def test_programs_get_no_colour_on_a_terminal_either() -> None:
    for form in (Form.JSON, Form.CSV):
        stream = Terminal()
        make_output(form, stream).show_listing(LISTING)
        assert "\x1b" not in stream.getvalue()


def test_what_takes_long_says_so_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0)
    stream = Terminal()
    appeared = Event()

    class Seen(Waiting):
        def _appear(self) -> None:
            super()._appear()
            appeared.set()

    line = Seen("reading epochs", Console(file=stream, force_terminal=True))
    line.start()
    assert appeared.wait(10)
    line.stop()
    assert "reading epochs" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K"), "the line is erased"


def test_what_is_quick_says_nothing() -> None:
    stream = Terminal()
    line = Waiting("reading epochs", Console(file=stream, force_terminal=True))
    line.start()
    line.stop()
    assert stream.getvalue() == ""
