"""Pipelines into Delta tables: the programs of the page, and processes killed at random moments."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.integration.spark.test_pipeline_kills import FedJob, kill_many_times, newest_by_user, patient
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "sinks" / "delta.md"


class DeltaJob(FedJob):
    """A job into Delta tables: one shows rows of open files, the other keeps one row for each key."""

    module = "tests.support.spark.delta_process"

    def check_result(self) -> None:
        """An outside reader finds all rows in the newest version, and none twice in any."""
        expected = self.expected_rows()
        table = DeltaTable(self.folder / "out")
        assert sorted(_rows(table), key=str) == expected
        for version in range(table.version()):
            seen = Counter(_rows(DeltaTable(self.folder / "out", version=version)))
            assert not seen - Counter(expected), "a row is there twice"
        named = [row for row in expected if row[0] is not None]
        assert sorted(_rows(DeltaTable(self.folder / "kept")), key=str) == newest_by_user(named)


def _rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pyarrow_table().to_pylist()]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[DeltaJob]:
    made = DeltaJob(tmp_path, 4)
    yield made
    made.kill_all()


@pytest.mark.full
@patient
def test_no_row_is_lost_or_there_twice_after_a_killed_driver_and_worker(job: DeltaJob) -> None:
    kill_many_times(job, 4, driver_kills=1, worker_kills=1)


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
