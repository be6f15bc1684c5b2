"""A number that changes with every epoch does not make Spark compile its code again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from lakestate.spark.execution.epoch_constants import epoch_constant_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = (7, -1, 2**62, 8)
GENERATED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


@pytest.fixture(autouse=True)
def generated_code(spark: SparkSession) -> Iterator[None]:
    """What Spark does by default. The session of the tests does without."""
    before = {name: spark.conf.get(name) for name in GENERATED}
    for name, value in GENERATED.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def compiled(spark: SparkSession) -> int:
    """How often Spark has compiled code so far."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    return int(metrics.METRIC_COMPILATION_TIME().getCount())


def rows_below(spark: SparkSession, number: int, constant: Callable[[int, str], str]) -> list[int]:
    time_us = "IF(id = 3, NULL, id - 5)"
    rows = spark.range(20).where(f"coalesce({time_us} < {constant(number, time_us)}, false)")
    return [row.id for row in rows.collect()]


def test_it_compares_as_a_number_does_and_nulls_are_never_below(spark: SparkSession) -> None:
    for number in NUMBERS:
        assert rows_below(spark, number, epoch_constant_sql) == [
            row for row in range(20) if row != 3 and row - 5 < number
        ]


def test_another_number_takes_the_same_code(spark: SparkSession) -> None:
    rows_below(spark, 1, epoch_constant_sql)
    before = compiled(spark)
    for number in NUMBERS:
        rows_below(spark, number, epoch_constant_sql)
    assert compiled(spark) == before
    # What Spark does with a plain number, or this test would notice nothing.
    rows_below(spark, NUMBERS[0], lambda number, _: f"{number}L")
    assert compiled(spark) > before
