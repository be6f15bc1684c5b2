"""The pytest plugin, as a user would use it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.totals import Totals

from lakestate.errors import InvalidInputError
from lakestate.testing.plugin import SurviveFaults, survive_faults  # noqa: F401 - a fixture

ROWS = [{"user": f"user-{number % 4}", "amount": float(number)} for number in range(16)]


def totals(rows, watermark_us):
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
    command = re.search(r"replay: pytest '(.*)' --simulation-seed (\d+)", str(failure.value))
    assert command is not None
    assert command[1].endswith("test_an_operator_that_keeps_state_in_its_process_is_found_out")
    with pytest.raises(pytest.fail.Exception, match=f"seed {command[2]}: "):
        SurviveFaults(command[1], only=int(command[2]))(Forgetful, ROWS, state=totals)


@pytest.mark.parametrize(
    ("rows", "settings", "told"),
    [
        ([], {}, "no rows to run the operator with"),
        ([{"amount": 1.0}], {}, "a row lacks a column that the job needs"),
        (ROWS, {"event_time": "ts"}, "a row lacks a column that the job needs"),
        (ROWS, {"state": None}, "nothing to compare with"),
    ],
)
def test_what_cannot_be_run_is_refused(rows, settings, told, survive_faults: SurviveFaults) -> None:  # noqa: F811
    with pytest.raises(InvalidInputError, match=told):
        survive_faults(Totals, rows, **{"state": totals, **settings})


PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def documented() -> list[str]:
    """The blocks of Python in the section for users: a `conftest.py`, and a test."""
    section = PAGE.read_text().split("\n## Your own operator\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def test_the_documented_example_runs_as_written(tmp_path: Path) -> None:
    conftest, test = documented()
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_mine.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--simulation-seeds", "3"]
    ran = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
