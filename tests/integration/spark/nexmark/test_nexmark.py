"""Nexmark on Spark: every query gives the rows of its batch answer, whatever is interrupted or killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples.nexmark.job import QUERIES, Feed
from tests.support.nexmark.answers import ALL_QUERIES, answer
from tests.support.nexmark.output import Rows, check_same, count_rows
from tests.support.nexmark.runs import run_at_once, run_interrupted, run_killed, run_with_losses
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Feed(events=6_000, events_per_epoch=1_500, seed=11)
LARGE_FACTOR = 10


@dataclass(frozen=True)
class Case:
    """A query in this test."""

    every: str = "30 ms"
    """The event time from event to event."""
    compared: Callable[[Rows], Rows] = lambda rows: rows
    """What is compared with the answer, if not the result itself."""

    def feed(self, factor: int = 1) -> Feed:
        return replace(
            SMALL,
            every=self.every,
            events=factor * SMALL.events,
            events_per_epoch=factor * SMALL.events_per_epoch,
        )


def without_rank(rows: Rows) -> Rows:
    return Counter({tuple(pair for pair in row if pair[0] != "rank"): count for row, count in rows.items()})


CASES = {
    "q0": Case(),
    "q1": Case(),
    "q2": Case(),
    "q3": Case(),
    "q4": Case(),
    "q5": Case(),
    "q6": Case(),
    "q7": Case(),
    "q8": Case(),
    "q9": Case(compared=without_rank),
    "q10": Case(),
    "q11": Case(),
    "q12": Case(compared=lambda rows: sum_bids(rows)),
    "q13": Case(),
    "q14": Case(every="20 seconds"),
    "q15": Case(every="20 seconds"),
    "q16": Case(every="20 seconds"),
    "q17": Case(every="20 seconds"),
    "q18": Case(),
    "q19": Case(),
    "q20": Case(),
    "q21": Case(),
    "q22": Case(),
}
LARGE = ("q4", "q5", "q9", "q11", "q16")
"""A join with an aggregate over changes, windows, a top of a join, sessions, distinct counts."""

WITHOUT_STATE = ("q0", "q1", "q2", "q14", "q21", "q22")
INTERRUPTED = [query for query in CASES if query not in (*WITHOUT_STATE, *LARGE)]

KILLED = ("q10",)
"""Files in partitions. Drivers of their own take long to start: one stands for all."""


def sum_bids(rows: Rows) -> Rows:
    """The bids of each bidder, whichever windows of processing time they are in."""
    totals: Counter[int] = Counter()
    for row, count in rows.items():
        totals[dict(row)["bidder"]] += dict(row)["bids"] * count
    return count_rows({"bidder": bidder, "bids": bids} for bidder, bids in totals.items())


def check_query(query: str, feed: Feed, run: Callable[[str, Feed, Path], Rows], folder: Path) -> None:
    check_same(CASES[query].compared(run(query, feed, folder)), answer(query, feed))


def test_every_query_has_a_file_and_a_case() -> None:
    assert {*CASES} == {*QUERIES} == {*ALL_QUERIES}
    assert {file.stem for file in (ROOT / "examples/nexmark").glob("*.sql")} == {*ALL_QUERIES}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("query", CASES)
def test_a_query_answers_as_a_batch_does(spark: SparkSession, tmp_path: Path, query: str) -> None:
    feed = replace(CASES[query].feed(), events_per_epoch=SMALL.events // 2)
    check_query(query, feed, partial(run_at_once, spark), tmp_path)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("query", INTERRUPTED)
def test_a_query_that_is_interrupted_answers_as_a_batch_does(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    check_query(query, CASES[query].feed(), partial(run_interrupted, spark), tmp_path)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("query", LARGE)
def test_a_query_over_many_events_that_loses_workers_too_answers_as_a_batch_does(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    check_query(query, CASES[query].feed(LARGE_FACTOR), partial(run_with_losses, spark), tmp_path)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("query", KILLED)
def test_a_query_whose_driver_is_killed_answers_as_a_batch_does(tmp_path: Path, query: str) -> None:
    check_query(query, CASES[query].feed(), run_killed, tmp_path)
