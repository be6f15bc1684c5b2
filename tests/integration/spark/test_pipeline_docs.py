"""Programs that the documentation shows run on Spark as they stand, as often as they are run."""

from __future__ import annotations

import inspect
import json
import os
import re
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.support.repository import ROOT
from tests.support.spark.pipelines import read_output

import lakestate as ls
from lakestate.testing.auctions import AuctionHouse, AuctionKind
from lakestate.testing.plugin import SurviveFaults


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
    assert [tag.fork for tag in first["backend"].tags("bid-counts")] == ["bid-counts-trial"]
    assert f"```\n{first['found']}\n```" in page
    second: dict[str, Any] = {"__name__": "__main__"}
    exec(program, second)
    # Everything was read, and all files were finished.
    assert second["query"].lastProgress is None
    assert second["report"].is_clean
    assert final_counts(tmp_path / "out") == expected_counts(20_000)


def run_program(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(program, names)
    return names


def give_orders(folder: Path, number: int, *orders: tuple[str, float, str]) -> None:
    """One more file of orders, read after the earlier ones."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"user": user, "amount": amount, "ts": ts}) for user, amount, ts in orders]
    hidden = folder / f".{number}.tmp"
    hidden.write_text("\n".join(lines))
    os.utime(hidden, (0, 1_700_000_000 + number))
    hidden.rename(folder / f"{number}.json")


@pytest.mark.usefixtures("spark")
def test_the_program_of_the_readme_runs_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    section = (ROOT / "README.md").read_text().split("## A pipeline\n")[1].replace("/data/", f"{tmp_path}/")
    program = "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:2])
    noon = "2026-01-01T12:{:02}:00Z".format
    give_orders(tmp_path / "events", 0, ("ada", 9.5, noon(0)), ("bob", -1.0, noon(1)))
    run_program(program)
    assert read_output(tmp_path / "totals") == [{"user": "ada", "n": 1, "spend": 9.5}]
    run_program(program)
    give_orders(tmp_path / "events", 1, ("ada", 0.5, noon(59)))
    run_program(program)
    assert not (tmp_path / "out").exists() or not read_output(tmp_path / "out")
    give_orders(tmp_path / "events", 2, ("eve", 0.5, "2026-01-01T13:30:00Z"))
    run_program(program)
    run_program(program)
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert read_output(tmp_path / "out") == [
        {
            "user": "ada",
            "window_start": start,
            "window_end": start + timedelta(hours=1),
            "n": 2,
            "spend": 10.0,
        }
    ]
    assert sorted(read_output(tmp_path / "totals"), key=str) == [
        {"user": "ada", "n": 1, "spend": 9.5},
        {"user": "ada", "n": 2, "spend": 10.0},
        {"user": "eve", "n": 1, "spend": 0.5},
    ]


@pytest.mark.usefixtures("spark")
def test_the_pipeline_of_the_page_on_operators_yields_every_hour_once_when_it_runs_again_and_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    page = (ROOT / "docs" / "operators.md").read_text().replace("/data/", f"{tmp_path}/")
    # The operators, the pipeline, and its second input.
    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:4]
    (tmp_path / "names").mkdir()
    hour = "2026-01-01T{:02}:00:00Z".format
    files = [
        [("ada", 1.0, hour(9)), ("bob", 2.0, hour(9))],
        [("ada", 4.0, hour(10)), ("bob", -5.0, hour(9))],
        [("ada", 8.0, hour(13))],
        [("eve", 3.0, hour(15))],
    ]
    for number, orders in enumerate(files):
        give_orders(tmp_path / "orders", number, *orders)
        for drain in (False, number == len(files) - 1):
            names: dict[str, Any] = {"__name__": "__main__", "spark": spark}
            for block in shown:
                exec(block, names)
            query = names["pipeline"].start(trigger={"availableNow": True})
            query.awaitTermination()
            query.stop(finish_files=True, drain=drain)
    found = [(row["user"], row["hour"].hour, row["spend"]) for row in read_output(tmp_path / "hours")]
    assert sorted(found) == [
        ("ada", 9, 1.0),
        ("ada", 10, 4.0),
        ("ada", 13, 8.0),
        ("bob", 9, 2.0),
        ("eve", 15, 3.0),
    ]
    named = [(row["user"], row["name"], row["amount"]) for row in read_output(tmp_path / "named")]
    everything = [(user, None, amount) for orders in files for user, amount, _ in orders]
    assert sorted(named) == sorted(everything)


@pytest.mark.usefixtures("spark")
def test_the_pipeline_of_the_docstring_runs_again_and_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = inspect.getdoc(ls.Pipeline)
    assert text is not None
    program = dedent(text[text.index("    class Count") :]).replace("/data/", f"{tmp_path}/")
    given = {"spark": spark, "ls": ls, "pa": pa, "pc": pc, "__name__": "__main__"}
    for number, users in enumerate((["ada", "bob"], ["ada"])):
        give_orders(tmp_path / "in", number, *((user, 1.0, "2026-01-01T12:00:00Z") for user in users))
        for _ in range(2):
            exec(program, dict(given))
    assert sorted((row["user"], row["n"]) for row in read_output(tmp_path / "out")) == [
        ("ada", 1),
        ("ada", 2),
        ("bob", 1),
    ]


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
    program, test, plugin_test, without_spark = re.findall(
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
    exec(plugin_test, names)
    (tmp_path / "plugin").mkdir()
    survive_faults = SurviveFaults("test_no_bid_is_lost_or_counted_twice", seeds=5)
    names["test_no_bid_is_lost_or_counted_twice"](survive_faults, tmp_path / "plugin")
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
