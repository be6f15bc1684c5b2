"""A table is dropped from an operator whose other state stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import (
    events,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    write_input,
)
from tests.support.spark.totals import Totals

import lakestate as ls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WithLast(Totals):
    """Keeps the last amount of each user beside the totals."""

    last = ls.KeyedTable(key="user string", value="amount double")

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Any:
        ctx.last.put(
            pa.table(batch)
            .select(["user", "amount"])
            .group_by("user")
            .aggregate([("amount", "max")])
            .rename_columns({"amount_max": "amount"})
        )
        yield from super().process_batch(batch, ctx)


class Fails(Totals):
    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Any:
        raise ValueError("not yet")


def test_a_table_is_dropped_and_the_others_stay(spark: SparkSession, tmp_path: Path) -> None:
    backend = ls.ParquetBackend(tmp_path / "checkpoints", cache_dir=tmp_path / "cache")

    def run(operator: ls.Operator, **options: Any) -> None:
        pipeline = ls.Pipeline("job", backend, parallelism=2, retention=ls.RetentionPolicy(1))
        source = pipeline.source(read_stream(spark, tmp_path / "in"))
        source.key_by("user").apply("totals", operator)
        run_available(pipeline, **options)

    def data_files() -> set[str]:
        return {path.name.partition("-")[0] for path in (tmp_path / "checkpoints").rglob("*.parquet")}

    write_input(tmp_path / "in", 0, events(0, 100))
    run(WithLast())
    last = state_rows(backend, "job", "totals", WithLast(), "last")
    write_input(tmp_path / "in", 1, events(1, 100))
    with pytest.raises(ls.IncompatibleStateError, match=r"found last; .*with drop=\['totals\.last'\]"):
        run(Totals())
    with pytest.raises(ls.NotFoundError, match=r"totals\.lst; .*did you mean totals\.last"):
        run(Totals(), drop=["totals.lst"])
    # Until an epoch without it is published, the table is there.
    with pytest.raises(ls.OperatorError, match="not yet"):
        run(Fails(), drop=["totals.last"])
    assert state_rows(backend, "job", "totals", WithLast(), "last") == last
    run(Totals(), drop=["totals.last"])
    write_input(tmp_path / "in", 2, events(2, 100))
    run(Totals())
    assert state_rows(backend, "job", "totals", Totals(), "totals") == spark_totals(spark, tmp_path / "in")
    assert data_files() == {"totals"}
    assert ls.verify(backend, "job").is_clean
    with pytest.raises(ls.NotFoundError, match=r"no such state to drop: totals\.last"):
        run(Totals(), drop=["totals.last"])
