"""Every operator that the documentation shows gives the same result when its job is run again and again.

A program that reads what is there, stops with `finish_files=True`, and is run again later, yields exactly
what one long run yields.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.jobs.counter_table import CounterTable
from tests.support.repository import ROOT

import lakestate as ls
from lakestate.testing import OperatorHarness

SHOWN = ("README.md", "docs/*.md", "examples/*.py", "src/lakestate/**/*.py")
_CLASS = re.compile(r"^( *)class (\w+)\(ls\.(?:TwoInput)?Operator\):\n(?:\1 .*\n| *\n)+", re.MULTILINE)


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, 1, hour, minute, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """The rows of two runs, with the watermark of each, and how the operator is made."""

    first: dict[str, Any]
    second: dict[str, Any]
    arguments: Sequence[Any] = ()
    harness: dict[str, Any] = field(default_factory=dict)


def rows(*given: dict[str, Any], watermark: datetime | None = None) -> dict[str, Any]:
    return {"rows": given, "watermark": watermark}


ORDERS = (
    {"user": "ada", "amount": 2.0, "ts": at(9, 10)},
    {"user": "ada", "amount": 3.0, "ts": at(9, 50)},
    {"user": "bob", "amount": 4.0, "ts": at(10, 5)},
)
VISITS = Case(rows({"user": "ada"}, {"user": "bob"}), rows({"user": "ada"}))
SPENT = Case(rows(*ORDERS[:2]), rows(ORDERS[2], ORDERS[0]))
PAGES = Case(
    rows({"user": "ann", "page": "/a"}, {"user": "bob", "page": "/b"}), rows({"user": "ann", "page": "/c"})
)
CASES = {
    "README.md Totals": SPENT,
    "docs/operators.md HourlySpend": Case(
        rows(*ORDERS, watermark=at(10)),
        rows({"user": "bob", "amount": 1.0, "ts": at(10, 30)}, watermark=at(11)),
    ),
    "docs/operators.md CountBy": Case(VISITS.first, VISITS.second, ["user string"]),
    "docs/operators.md WithNames": Case(
        {"right": [{"user": "ada", "name": "Ada"}]}, {"left": [{"user": "ada", "amount": 2.0}]}
    ),
    "docs/operators.md Reminds": Case(
        rows({"user": "ada"}, {"user": "bob"}) | {"processing_time": at(9)},
        rows({"user": "bob"}) | {"processing_time": at(9, 5)},
    ),
    "docs/operators.md Paid": Case(SPENT.first, SPENT.second, harness={"key": "user"}),
    "docs/operations.md BidCounts": Case(rows({"bidder": 1}, {"bidder": 2}), rows({"bidder": 1})),
    "docs/own-outputs.md BidsInSqlite": Case(
        rows({"bidder": 1, "price": 5}, {"bidder": 2, "price": 7}),
        rows({"bidder": 1, "price": 1}),
        ["{folder}/bids.db"],
        harness={"key": "bidder"},
    ),
    "src/lakestate/operators/timers/table.py Remind": Case(
        rows({"user": "ada", "due": at(9)}, {"user": "bob", "due": at(11)}, watermark=at(10)),
        rows({"user": "ada", "due": at(10)}, watermark=at(12)),
    ),
    "docs/reliability.md Totals": VISITS,
    "docs/reliability.md Visits": Case(
        rows({"user": "ada", "ts": at(9)}, {"user": "ada", "ts": at(9, 1)}, watermark=at(9, 1)),
        rows({"user": "ada", "ts": at(9, 1)}, watermark=at(9, 3)),
    ),
    "docs/table-types.md Visits": VISITS,
    "examples/bidder_totals.py BidderTotals": Case(
        rows({"bidder": 1, "price": 5}, {"bidder": 2, "price": 7}), rows({"bidder": 1, "price": 1})
    ),
    "src/lakestate/operators/operator.py Count": VISITS,
    "src/lakestate/spark/pipeline.py Count": VISITS,
    "src/lakestate/testing/operator_harness.py LastSeen": PAGES,
    "src/lakestate/testing/plugin.py LastPage": PAGES,
}


def shown_operators() -> Iterator[tuple[str, str]]:
    """The source of every operator that is shown, by the page and its name."""
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            text = re.sub(r"^( *)(?:>>> |\.\.\. ?)", r"\1", path.read_text(), flags=re.MULTILINE)
            for found in _CLASS.finditer(text):
                yield f"{path.relative_to(ROOT)} {found[2]}", dedent(found[0])


OPERATORS = dict(shown_operators())


def test_every_operator_that_is_shown_is_run_here() -> None:
    assert set(OPERATORS) == set(CASES)


def harness_of(name: str, folder: Path) -> OperatorHarness:
    case = CASES[name]
    names = {
        each.__name__.rpartition(".")[2]: each
        for each in (json, sqlite3, closing, datetime, timedelta, Iterator)
    }
    names |= {"ls": ls, "pa": pa, "pc": pc, "UTC": UTC, "CounterTable": CounterTable}
    exec(OPERATORS[name], names)
    folder.mkdir()
    arguments = [argument.format(folder=folder) for argument in case.arguments]
    operator: Any = names[name.split()[1]]
    return OperatorHarness(operator(*arguments), parallelism=2, **case.harness)


def own_outputs(folder: Path) -> list[tuple[Any, ...]]:
    """What an operator has written by itself."""
    found: list[tuple[Any, ...]] = []
    for path in folder.glob("*.db"):
        with closing(sqlite3.connect(path)) as db:
            found += db.execute("SELECT * FROM bids ORDER BY 1")
    return found


def in_order(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=str)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_the_same_in_two_runs_as_in_one(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    once, again = harness_of(name, tmp_path / "once"), harness_of(name, tmp_path / "again")
    expected = [once.epoch(**case.first), once.epoch(**case.second), once.drain()]
    found = [again.epoch(**case.first)]
    again.pause()
    found.append(again.epoch(**case.second))
    again.pause()
    again.pause()
    found.append(again.drain())
    assert [in_order(each) for each in found] == [in_order(each) for each in expected]
    again.reopen()
    assert again.drain() == []
    assert own_outputs(tmp_path / "again") == own_outputs(tmp_path / "once")


def test_the_first_operator_of_the_page_yields_every_hour_once(tmp_path: Path) -> None:
    harness = harness_of("docs/operators.md HourlySpend", tmp_path / "once")
    case = CASES["docs/operators.md HourlySpend"]
    found = []
    for each in (case.first, case.second):
        found += harness.epoch(**each)
        harness.pause()
    assert in_order(found + harness.drain()) == [
        {"user": "ada", "hour": at(9), "spend": 5.0},
        {"user": "bob", "hour": at(10), "spend": 5.0},
    ]


def test_a_user_is_reminded_after_five_minutes_of_silence(tmp_path: Path) -> None:
    harness = harness_of("docs/operators.md Reminds", tmp_path / "once")
    harness.epoch([{"user": "ada"}, {"user": "bob"}], processing_time=at(9))
    harness.epoch([{"user": "bob"}], processing_time=at(9, 4))
    assert harness.epoch(processing_time=at(9, 5)) == [{"user": "ada", "due": at(9, 5)}]
    assert harness.epoch(processing_time=at(9, 8)) == []
    assert harness.drain(processing_time=at(9, 9)) == [{"user": "bob", "due": at(9, 9)}]


def test_pages_are_found_where_they_are() -> None:
    assert {Path(name.split()[0]).suffix for name in OPERATORS} == {".md", ".py"}
