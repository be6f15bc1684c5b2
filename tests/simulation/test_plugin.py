"""The pytest plugin, as a user would use it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.repository import ROOT
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.errors import InvalidInputError, OperatorError
from lakestate.testing.plugin import (  # noqa: F401 - a fixture
    EARLIER_HISTORIES_FAIL,
    FAILS_WITHOUT_FAULTS,
    OperatorJob,
    SurviveFaults,
    survive_faults,
)
from lakestate.testing.simulation.campaigns.shrink import NOT_REPEATABLE, shrink
from lakestate.testing.simulation.faults import FaultRates
from lakestate.testing.simulation.scenario import Scenario

ROWS = [{"user": f"user-{number % 4}", "amount": float(number)} for number in range(16)]


def totals(seen):
    rows = seen.rows
    users = sorted({row["user"] for row in rows})
    found = {user: [row["amount"] for row in rows if row["user"] == user] for user in users}
    return {"totals": [{"user": user, "n": len(found[user]), "spend": sum(found[user])} for user in users]}


def test_an_operator_that_keeps_everything_in_tables_survives(survive_faults: SurviveFaults) -> None:  # noqa: F811
    survive_faults(Totals, ROWS, state=totals, seeds=8)


class Forgetful(Totals):
    """Remembers in the process what belongs into a table."""

    seen: set[str] = set()  # noqa: RUF012 - that is the mistake

    def process_batch(self, batch, ctx):
        fresh = [number for number, row in enumerate(batch.to_pylist()) if str(row) not in self.seen]
        self.seen.update(str(row) for row in batch.to_pylist())
        yield from super().process_batch(batch.take(pa.array(fresh, pa.int64())), ctx)


def test_an_operator_that_keeps_state_in_its_process_is_found_out(survive_faults: SurviveFaults) -> None:  # noqa: F811
    with pytest.raises(pytest.fail.Exception, match="exactly the oracle's state") as failure:
        survive_faults(Forgetful, ROWS, state=totals, seeds=30)
    # The set of a class outlives a history: one seed replays alone only if it is the first one that fails.
    command = re.search(r"replay: pytest (.*) --simulation-seeds? (\d+)", str(failure.value))
    assert command is not None
    assert command[1].endswith("test_an_operator_that_keeps_state_in_its_process_is_found_out")
    with pytest.raises(pytest.fail.Exception, match=r"seed \d+: "):
        SurviveFaults(command[1])(Forgetful, ROWS, state=totals, seeds=int(command[2]) + 1)


@pytest.mark.parametrize(
    ("rows", "settings", "told"),
    [
        ([], {}, "no rows to run the operator with"),
        ([{"amount": 1.0}], {}, "a row lacks a column that the job needs"),
        (ROWS, {"event_time": "ts"}, "a row lacks a column that the job needs"),
        (ROWS, {"event_time": "user"}, "not a point in time"),
        (ROWS, {"state": None}, "nothing to compare with"),
        (ROWS, {"seeds": 0}, "no history to run; found seeds=0; expected at least 1"),
        (ROWS, {"ignored": ["nope"]}, "unknown columns to ignore; found nope; expected some of"),
        (ROWS, {"ignored": "spent"}, "unknown columns to ignore; found spent; "),
        (
            ROWS,
            {"state": lambda seen: None},
            "exactly the tables .*; found None; expected totals",
        ),
        (ROWS, {"state": lambda seen: {}}, "exactly the tables .*; found {}; expected totals"),
        (ROWS, {"state": lambda seen: {"total": []}}, "; found total; expected totals"),
        (
            ROWS,
            {"state": lambda seen: {"totals": {"ann": 1}}},
            "rows: table totals; found 'ann'",
        ),
        (ROWS, {"output": lambda seen: None}, "an oracle must return rows: output; found None"),
    ],
)
def test_what_cannot_be_run_is_refused(rows, settings, told, survive_faults: SurviveFaults) -> None:  # noqa: F811
    with pytest.raises(InvalidInputError, match=told):
        survive_faults(Totals, rows, **{"state": totals, **settings})


class Both(ls.TwoInputOperator):
    pairs = ls.KeyedTable(key="user string", value="n bigint")


class Silent(ls.Operator):
    """Yields nothing and keeps nothing."""

    def process_batch(self, batch, ctx):
        pass


@pytest.mark.parametrize(
    ("operator", "oracles", "told"),
    [
        (Totals(), {"state": totals}, "pass the class or a function that makes it"),
        (lambda: Totals, {"state": totals}, "a function that makes <class .*; pass the class or"),
        (Both, {"state": totals}, r"a row of no input of the operator: Both; .* expected Left\(…\) or Right"),
        (Silent, {"state": totals}, "a state oracle for an operator without tables"),
        (Silent, {"output": lambda seen: []}, "an output oracle for an operator that declares no output"),
    ],
)
def test_operators_that_cannot_be_run_are_refused(operator, oracles, told) -> None:
    with pytest.raises(InvalidInputError, match=told):
        SurviveFaults("here")(operator, ROWS, key="user", **oracles)


def test_a_single_name_is_taken_for_one_column(survive_faults: SurviveFaults) -> None:  # noqa: F811
    survive_faults(Totals, ROWS, key="user", ignored="spend", state=totals, seeds=2)


def test_an_error_of_the_oracle_is_raised_with_its_traceback(survive_faults: SurviveFaults) -> None:  # noqa: F811
    def misspelt(seen):
        return {"totals": [{"user": row["usr"]} for row in seen.rows]}

    with pytest.raises(KeyError, match="usr") as raised:
        survive_faults(Totals, ROWS, state=misspelt, seeds=2)
    assert "misspelt" in [entry.name for entry in raised.traceback]


def test_an_oracle_may_end_the_test_itself(survive_faults: SurviveFaults) -> None:  # noqa: F811
    with pytest.raises(pytest.fail.Exception, match=r"^not these rows$"):
        survive_faults(Totals, ROWS, state=totals, output=lambda seen: pytest.fail("not these rows"), seeds=2)


def test_an_error_of_the_operator_is_raised_with_its_cause(survive_faults: SurviveFaults) -> None:  # noqa: F811
    class Misspelt(Totals):
        def process_batch(self, batch, ctx):
            yield batch["usr"]

    with pytest.raises(OperatorError, match="raised KeyError") as raised:
        survive_faults(Misspelt, ROWS, state=totals, seeds=2)
    assert isinstance(raised.value.__cause__, KeyError)


NESTED = pa.schema(
    [
        ("user", pa.string()),
        ("pages", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


class Nested(ls.Operator):
    output = NESTED
    visits = ls.KeyedTable(
        key="user string",
        value="pages array<string>, at struct<x: bigint, y: array<bigint>>, tags map<string, bigint>",
    )

    def process_batch(self, batch, ctx):
        rows = pa.Table.from_pylist(
            [nested(user) for user in sorted(set(batch["user"].to_pylist()))], schema=NESTED
        )
        fresh = rows.filter(pa.array([pages is None for pages in self.visits.get(rows)["pages"].to_pylist()]))
        self.visits.put(rows)
        yield fresh


def nested(user: str) -> dict[str, Any]:
    """As an oracle would write it; Arrow takes a map in this form, and gives pairs back."""
    return {"user": user, "pages": [user, "b"], "at": {"x": 1, "y": [2, 3]}, "tags": {"z": 1, "a": 2}}


def test_nested_columns_are_compared(survive_faults: SurviveFaults) -> None:  # noqa: F811
    def visits(seen):
        return [nested(user) for user in {row["user"] for row in seen.rows}]

    rows = [{"user": row["user"]} for row in ROWS]
    oracles = {"state": lambda seen: {"visits": visits(seen)}, "output": visits}
    survive_faults(Nested, rows, **oracles, seeds=4)

    def other_pages(seen):
        return {"visits": [row | {"pages": ["b", row["user"]]} for row in visits(seen)]}

    with pytest.raises(pytest.fail.Exception, match=r"'pages', \('b', 'user-"):
        survive_faults(Nested, rows, state=other_pages, seeds=1)


class Fickle(Totals):
    """Loses rows for some time, and never again."""

    calls = 0

    def process_batch(self, batch, ctx):
        Fickle.calls += 1
        if 30 <= Fickle.calls < 40:
            batch = batch.slice(1)
        yield from super().process_batch(batch, ctx)


def test_an_operator_that_ends_differently_each_time_is_reported() -> None:
    with pytest.raises(pytest.fail.Exception) as failure:
        SurviveFaults("here")(Fickle, ROWS, state=totals, seeds=30)
    first, replay, why, *_ = str(failure.value).splitlines()
    assert re.match(r"seed \d+: every retained epoch has exactly the oracle's state: table totals", first)
    assert re.match(r"replay: pytest here --simulation-seeds? \d+$", replay)
    assert why == NOT_REPEATABLE


SIMPLEST = Scenario(
    rows=6,
    rows_per_epoch=4,
    drivers=1,
    parallelism=(1,),
    compaction=None,
    switch_rate=0.0,
    tags=0,
    readers=0,
)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_failure_that_is_not_seen_again_is_shown_as_it_was(failures: int) -> None:
    bad, good = (OperatorJob(operator, ROWS, state=totals) for operator in (Dropping, Totals))
    jobs = chain([bad] * failures, repeat(good))
    failure = shrink(1, SIMPLEST, make_job=lambda random, scenario: next(jobs))
    assert (failure.is_repeatable, failure.scenario) == (False, SIMPLEST)
    assert str(failure).startswith("seed 1: every retained epoch has exactly the oracle's state: ")
    assert NOT_REPEATABLE in str(failure)


class Dropping(Totals):
    """Always loses the fifth row."""

    def process_batch(self, batch, ctx):
        yield from super().process_batch(batch.filter(pc.not_equal(batch["amount"], 4.0)), ctx)


def test_a_failure_is_shrunk_to_the_rows_and_the_scenario_that_it_needs() -> None:
    job = OperatorJob(Dropping, ROWS, state=totals)
    scenario = replace(
        Scenario(rows=16, drivers=3, parallelism=(2, 3, 1), sinks=2, tags=2, readers=2, rows_per_epoch=4),
        part_objects=True,
        loses_part=True,
        small_limits=True,
        is_skewed=True,
        rates=FaultRates(crash_after=0.01, nap=0.01),
    )
    failure = shrink(1, scenario, make_job=lambda random, scenario: job.first(scenario.rows))
    assert failure.script == {}
    assert failure.scenario == SIMPLEST
    with pytest.raises(pytest.fail.Exception) as told:
        SurviveFaults("here")(Dropping, ROWS, state=totals)
    assert str(told.value).splitlines()[2:4] == ["with the first 6 of 16 rows", FAILS_WITHOUT_FAULTS]


CONFTEST = 'pytest_plugins = ["lakestate.testing.plugin"]'
HOARDING = """
import pyarrow as pa
import pytest

import lakestate as ls

FINISHED = []  # What the process remembers of histories that came to their end.
ROWS = [{"user": f"user {number}"} for number in range(6)]


class Users(ls.Operator):
    users = ls.KeyedTable(key="user string", value="n bigint")

    def process_batch(self, batch, ctx):
        if not FINISHED:
            self.users.put(pa.table({"user": batch["user"], "n": [1] * batch.num_rows}))


def users(seen):
    if seen.rows == ROWS:
        FINISHED.append(seen)
    return {"users": [row | {"n": 1} for row in seen.rows]}


class TestUsers:
    @pytest.mark.parametrize("whose", ["user's"])
    def test_they_are_kept(self, survive_faults, whose):
        survive_faults(Users, ROWS, state=users)
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_the_printed_command_repeats_a_failure_that_earlier_histories_caused(tmp_path: Path) -> None:
    folder = tmp_path / "my tests"
    folder.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (folder / "test_mine.py").write_text(HOARDING)
    ran = run_pytest(folder)
    assert "seed 1: every retained epoch has exactly the oracle's state" in ran.stdout, (
        ran.stdout + ran.stderr
    )
    assert EARLIER_HISTORIES_FAIL in ran.stdout
    program, *arguments = shlex.split(ran.stdout.split("replay: ")[1].splitlines()[0])
    assert (program, arguments[1:]) == ("pytest", ["--simulation-seeds", "2"])
    assert run_pytest(folder, arguments[0], "--simulation-seed", "1").returncode == 0
    again = run_pytest(folder, *arguments)
    assert again.returncode == 1
    assert "seed 1: every retained epoch has exactly the oracle's state" in again.stdout


def test_to_ask_for_no_history_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    ran = run_pytest(tmp_path, "--simulation-seeds", "0")
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "0 histories test nothing: at least 1" in ran.stderr
    with pytest.raises(InvalidInputError, match="no history to run; found seeds=-4"):
        SurviveFaults("here", seeds=-4)(Totals, ROWS, state=totals)


PAGE = ROOT / "docs" / "reliability.md"


def documented() -> list[str]:
    """The blocks of Python in the section for users: a `conftest.py`, and tests."""
    section = PAGE.read_text().split("\n## Your own operator\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def test_the_documented_example_runs_as_written(tmp_path: Path) -> None:
    conftest, *tests = documented()
    (tmp_path / "conftest.py").write_text(conftest)
    for number, test in enumerate(tests):
        (tmp_path / f"test_mine_{number}.py").write_text(test)
    ran = run_pytest(tmp_path, "--simulation-seeds", "3", ".")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


class LastPage(ls.Operator):
    """Keyed by a type that Python's classes do not tell from others."""

    pages = ls.KeyedTable(key="user int", value="page string, share double")

    def process_batch(self, batch, ctx):
        self.pages.put(batch)
        return ()


def test_dicts_have_the_keys_and_columns_that_the_operator_declares(survive_faults: SurviveFaults) -> None:  # noqa: F811
    rows = [{"user": number, "share": float("nan")} for number in range(6)]
    rows += [{"user": number, "share": 0.5, "page": f"/{number}"} for number in range(6, 12)]

    def pages(seen):
        return {"pages": [{"page": None, **row} for row in seen.rows]}

    survive_faults(LastPage, rows, state=pages, seeds=8)
