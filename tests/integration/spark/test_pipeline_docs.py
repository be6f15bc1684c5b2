"""The pages on operations and on outputs of your own run on Spark as they stand."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.support.repository import ROOT

from lakestate.testing.auctions import AuctionHouse, AuctionKind


@pytest.mark.usefixtures("spark")
def test_the_page_on_operations_runs_and_its_program_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "operations.md").read_text().replace("file:///data", f"file://{tmp_path}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program, *others = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    # Classes of a program are pickled by value, those of a module by name.
    first: dict[str, Any] = {"__name__": "__main__"}
    exec(program, first)
    assert first["report"].is_clean
    assert {type(first["spark"])} == {SparkSession}
    for block in others:
        exec(block.replace("start_http_server(8000)", ""), first)
    assert first["backend"].tags("bid-counts") == ()
    second: dict[str, Any] = {"__name__": "__main__"}
    exec(program, second)
    assert second["query"].lastProgress.epoch == first["query"].lastProgress.epoch + 1
    assert second["report"].is_clean
    assert final_counts(tmp_path / "out") == expected_counts(20_000)


def final_counts(folder: Path) -> dict[int, int]:
    """The largest count of each bidder: counts only grow."""
    counts: dict[int, int] = {}
    for row in pq.read_table(folder).to_pylist():
        counts[row["bidder"]] = max(row["bids"], counts.get(row["bidder"], 0))
    return counts


def expected_counts(rows: int) -> dict[int, int]:
    return dict(Counter(AuctionHouse(0).rows(AuctionKind.BIDS, 0, rows).column("bidder").to_pylist()))


@pytest.mark.usefixtures("spark")
def test_the_page_on_outputs_of_your_own_runs_and_its_program_runs_twice(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own-outputs.md").read_text().replace("file:///data", f"file://{tmp_path}")
    program, test, without_spark = re.findall(
        r"```python\n(.*?)```", page.replace("/data", str(tmp_path)), re.DOTALL
    )
    for _ in range(2):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(program, names)
        assert names["query"].exception() is None
        assert bids_in(tmp_path / "bids.db") == expected_bids(20_000)
    exec(test, names)
    (tmp_path / "test").mkdir()
    names["test_a_repeated_commit_changes_nothing"](tmp_path / "test")
    exec(without_spark, names)


def bids_in(path: Path) -> dict[int, tuple[int, int]]:
    with closing(sqlite3.connect(path)) as db:
        return {bidder: (bids, spent) for bidder, bids, spent in db.execute("SELECT * FROM bids")}


def expected_bids(rows: int) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in AuctionHouse(0).rows(AuctionKind.BIDS, 0, rows).to_pylist():
        bids, spent = found.get(row["bidder"], (0, 0))
        found[row["bidder"]] = (bids + 1, spent + row["price"])
    return found
