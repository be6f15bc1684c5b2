"""The pytest plugin, as a user would use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.totals import Totals

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
    assert "--simulation-seed" in str(failure.value)


EXAMPLE = """
import lakestate as ls

pytest_plugins = ["lakestate.testing.plugin"]

class LastPage(ls.Operator):
    pages = ls.KeyedTable(key="user string", value="page string")

    def process_batch(self, batch, ctx):
        self.pages.put(batch)

def pages(rows, watermark_us):
    last = {row["user"]: row["page"] for row in rows}
    return {"pages": [{"user": user, "page": page} for user, page in last.items()]}

def test_last_page(survive_faults):
    rows = [{"user": f"u{n}", "page": f"/{n}"} for n in range(9)]
    survive_faults(LastPage, rows, state=pages)
"""


def test_a_few_lines_in_a_test_of_ones_own_are_enough(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(EXAMPLE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--simulation-seeds", "2"]
    ran = subprocess.run(
        [*command, "-p", "lakestate.testing.plugin", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
