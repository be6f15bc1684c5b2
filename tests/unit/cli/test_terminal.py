"""What only people see: colour and progress, on a terminal and nowhere else."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from rich.console import Console
from tests.support.command_line import run_command

from lakestate.cli import waiting as module
from lakestate.cli.output import Form, Listing, Report, make_output
from lakestate.cli.waiting import Waiting
from lakestate.storage.local.store import LocalStore


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


def narrow(listing: Listing, monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    make_output(Form.TABLE, stream).show_listing(listing)
    return [line.rstrip() for line in re.sub("\x1b[^m]*m", "", stream.getvalue()).splitlines()]


EPOCHS = Listing(
    ("epoch", "status", "published", "watermark"),
    [(4, "complete", "2026-01-01 12:00:00Z", "2026-01-01 11:00:00Z"), (3, "damaged", None, None)],
)


def test_a_row_that_the_terminal_is_too_narrow_for_is_shown_line_by_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert narrow(EPOCHS, monkeypatch, 40) == [
        "epoch      4",
        "status     complete",
        "published  2026-01-01 12:00:00Z",
        "watermark  2026-01-01 11:00:00Z",
        "",
        "epoch      3",
        "status     damaged",
        "published",
        "watermark",
    ]
    assert len(narrow(EPOCHS, monkeypatch, 80)) == 4


def test_only_the_widest_column_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing(("epoch", "problem", "found"), [(4, "word " * 12, "2026-01-01")])
    assert narrow(listing, monkeypatch, 50)[2:] == [
        "    4   word word word word word word   2026-01-01",
        "        word word word word word word",
    ]


def test_an_empty_text_is_not_shown_as_null() -> None:
    rows = [("", ["a", None], True), (None, [("a", 1)], False)]
    listing = Listing(("k", "m", "b"), rows, is_data=True)
    shown = {}
    for form in (Form.TABLE, Form.CSV):
        stream = StringIO()
        make_output(form, stream).show_listing(listing)
        shown[form] = stream.getvalue().splitlines()
    assert shown[Form.TABLE][2:] == ['""   ["a", null]   true', '     [["a", 1]]    false']
    assert shown[Form.CSV] == ["k,m,b", '"","[""a"", null]",true', ',"[[""a"", 1]]",false']


def test_whoever_waits_for_a_store_or_a_query_is_told(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a command asks of the store is asked while its line is there, or may appear."""
    silent: list[str] = []

    def watch(name: str) -> None:
        call = getattr(LocalStore, name)

        def watched(store: LocalStore, path: Any = "", *rest: Any) -> Any:
            silent.extend([] if module._shown else [f"{name} {path}"])
            return call(store, path, *rest)

        monkeypatch.setattr(LocalStore, name, watched)

    for name in ("get", "get_ranges", "get_many", "head", "list", "list_folders", "create", "delete_many"):
        watch(name)
    for command in (
        ("jobs",),
        ("epochs", "shop"),
        ("show", "shop"),
        ("state", "shop", "per_user", "totals"),
        ("state", "shop", "per_user", "totals", "--where", "n > 1"),
        ("sql", "shop", "SELECT sum(n) FROM totals"),
        ("diff", "shop", "1"),
        ("diff", "shop", "1", "--table", "per_user.totals"),
        ("history", "shop", "per_user", "totals", "ada"),
        ("du", "shop"),
        ("tag", "shop", "one", "4"),
        ("tags", "shop"),
        ("untag", "shop", "one"),
        ("retain", "shop"),
        ("compact", "shop"),
        ("fork", "shop", "trial", "--dry-run"),
        ("fsck", "shop"),
    ):
        assert run_command(*command).code == 0
        assert (command, silent) == (command, [])
