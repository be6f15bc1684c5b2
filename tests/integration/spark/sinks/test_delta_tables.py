"""Pipelines into Delta tables: the programs of the page, and drivers killed at random moments."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.repository import ROOT
from tests.support.spark.pipeline_process import FINISH, TotalsJob
from tests.support.spark.pipelines import events, write_input
from tests.support.spark.totals import totals_after_each

PAGE = ROOT / "docs" / "sinks" / "delta.md"
FILES = 10
FILE_ROWS = 60
USERS = 20
EPOCH_S = 0.8
"""About as long as an epoch takes: kills are spread over it."""


class DeltaJob(TotalsJob):
    """A job with all its input, and the tables that its drivers write."""

    module = "tests.support.spark.delta_process"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = [events(number, FILE_ROWS, USERS) for number in range(FILES)]
        for number, rows in enumerate(self.files):
            write_input(folder / "in", number, rows)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """What an outside reader finds in a table."""
        found = DeltaTable(self.folder / name).to_pyarrow_table().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)

    def newest(self) -> list[tuple[Any, ...]]:
        """The oracle: how often each user occurs, and the sum of the amounts."""
        found: dict[str, tuple[int, float]] = {}
        for user, amount in (row for batch in self.batches() for row in batch if row[0] is not None):
            n, spend = found.get(user, (0, 0.0))
            found[user] = (n + 1, spend + amount)
        return sorted(((user, *totals) for user, totals in found.items()), key=str)

    def batches(self) -> list[list[tuple[Any, ...]]]:
        return [[(row["user"], row["amount"]) for row in file.to_pylist()] for file in self.files]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[DeltaJob]:
    made = DeltaJob(tmp_path)
    yield made
    made.kill_all()


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_row_is_lost_or_there_twice_in_a_table_whose_drivers_are_killed(job: DeltaJob) -> None:
    choose = random.Random(4)
    standby = job.standby()
    for _ in range(2):
        driver, standby = standby, job.standby()
        newest = job.newest_epoch()
        driver.go()
        driver.wait_for(lambda newest=newest: job.newest_epoch() > newest)  # type: ignore[misc]
        driver.run_on(choose.uniform(0, EPOCH_S))
        driver.kill()
    standby.go(FINISH)
    assert standby.wait() == 0, standby.said()
    assert job.rows("out") == totals_after_each(job.batches())
    assert job.rows("kept") == job.newest()


def give_orders(folder: Path, number: int, *orders: tuple[str, str, float]) -> None:
    """One more file of orders, visible all at once."""
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps({"user": user, "country": country, "amount": amount}) for user, country, amount in orders
    ]
    hidden = folder / f".{number}.tmp"
    hidden.write_text("\n".join(lines))
    hidden.rename(folder / f"{number}.json")


@pytest.mark.usefixtures("spark")
def test_the_program_of_the_page_runs_again_and_again(tmp_path: Path) -> None:
    page = PAGE.read_text().replace("/data/", f"{tmp_path}/")
    write, read, _, keep, look = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    orders = [("ada", "DE", 9.5), ("bob", "FR", 1.0), ("ada", "DE", 2.0)]
    for number, count in enumerate((2, 3)):
        give_orders(tmp_path / "in", number, *orders[number * 2 : count])
        exec(write, {"__name__": "__main__"})
        names: dict[str, Any] = {}
        exec(read, names)
        found = sorted(tuple(row.values()) for row in names["orders"].to_pylist())
        assert found == sorted(orders[:count])
        assert names["spent"].fetchall() == [("DE", (9.5, 11.5)[number])]
        exec(keep, {"__name__": "__main__"})
        exec(look, names)
        kept = {row["user"]: (row["n"], row["spend"]) for row in names["totals"].to_pylist()}
        assert kept == {"ada": ((1, 9.5), (2, 11.5))[number], "bob": (1, 1.0)}
