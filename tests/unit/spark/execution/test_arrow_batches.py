"""How many rows Spark hands to Python at once."""

from __future__ import annotations

from typing import Any

import pytest

from lakestate.coordinator.epoch_plan import SubtaskReport
from lakestate.spark.execution.arrow_batches import (
    BATCH_BYTES,
    BYTES,
    NARROW_BYTES,
    RECORDS,
    ArrowBatches,
    records_per_batch,
)

NOT_COUNTED = "2147483647"
"""The limit for which Spark's own code leaves out the counting."""


class Settings:
    """What a session's `conf` is asked and told."""

    def __init__(self, known: bool = True, **given: str) -> None:
        self.known = known
        self.values = given
        self.changes = 0

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def isModifiable(self, name: str) -> bool:
        return self.known

    def set(self, name: str, value: str) -> None:
        self.values[name] = value
        self.changes += 1

    def unset(self, name: str) -> None:
        self.values.pop(name, None)
        self.changes += 1


class Session:
    def __init__(self, conf: Settings) -> None:
        self.conf = conf


def reports(*row_bytes: float) -> list[SubtaskReport]:
    return [SubtaskReport("stage", index, (), row_bytes=size) for index, size in enumerate(row_bytes)]


def begun(conf: Settings) -> tuple[ArrowBatches, Any]:
    session: Any = Session(conf)
    batches = ArrowBatches()
    batches.begin(session)
    return batches, session


@pytest.mark.parametrize("row_bytes", [0.5, 3, 32, 33, 100, 181.3, 1000, NARROW_BYTES])
def test_a_batch_of_narrow_rows_is_small_even_if_they_become_a_hundred_times_as_wide(
    row_bytes: float,
) -> None:
    records = records_per_batch(row_bytes)
    assert records is not None
    assert records * row_bytes <= BATCH_BYTES
    assert records >= 1024


@pytest.mark.parametrize("row_bytes", [0, NARROW_BYTES + 1, 1e9])
def test_bytes_are_counted_if_rows_are_wide_or_unknown(row_bytes: float) -> None:
    assert records_per_batch(row_bytes) is None


def test_the_widest_rows_of_an_epoch_decide_for_the_next() -> None:
    conf = Settings()
    batches, session = begun(conf)
    batches.apply(session)
    assert conf.values == {}
    batches.learn(reports(10, 1000))
    batches.apply(session)
    assert conf.values == {RECORDS: "4096", BYTES: NOT_COUNTED}


def test_an_epoch_without_rows_and_the_same_rows_again_change_nothing() -> None:
    conf = Settings()
    batches, session = begun(conf)
    for sizes in [(200, 190), (0, 0), (201, 0), ()]:
        batches.learn(reports(*sizes))
        batches.apply(session)
    assert conf.values == {RECORDS: "16384", BYTES: NOT_COUNTED}
    assert conf.changes == 2


def test_spark_counts_again_after_an_epoch_with_wide_rows() -> None:
    conf = Settings()
    batches, session = begun(conf)
    for size in (200, 1_000_000):
        batches.learn(reports(size))
        batches.apply(session)
    assert conf.values == {RECORDS: "131072"}


def test_a_new_query_is_told_again() -> None:
    batches, session = begun(Settings())
    batches.learn(reports(200))
    batches.apply(session)
    conf = Settings()
    other: Any = Session(conf)
    batches.begin(other)
    batches.apply(other)
    assert conf.values == {RECORDS: "16384", BYTES: NOT_COUNTED}


@pytest.mark.parametrize("conf", [Settings(known=False), Settings(**{BYTES: "1m"})])
def test_a_limit_of_the_user_and_a_spark_without_one_are_left_alone(conf: Settings) -> None:
    before = dict(conf.values)
    batches, session = begun(conf)
    batches.learn(reports(200))
    batches.apply(session)
    assert conf.values == before
