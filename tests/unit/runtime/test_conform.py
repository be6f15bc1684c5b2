"""A row is cast once on its way through a subtask: where it first meets a declared schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.coordinator.epoch_plan import EpochPlan
from lakestate.errors import OperatorError
from lakestate.protocol.values import Epoch, Generation
from lakestate.runtime.conform import conform_input, conform_output
from lakestate.runtime.sink_step import SinkStep
from lakestate.runtime.steps import ChainLink, OperatorStep
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.tables.arrow import conform

DECLARED = "user string, n bigint"
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
NARROW = pa.record_batch({"user": pa.array(["ada"]), "n": pa.array([1], pa.int32())})
"""Rows as the first operator yields them: `n` has to be cast."""


class Narrow(ls.Operator):
    """Yields another type than it declares."""

    output = DECLARED

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        yield NARROW


class Count(ls.Operator):
    """Keeps what it is given, and hands it on."""

    input = output = DECLARED
    counts = ls.KeyedTable(key="user string", value="n bigint")

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        self.counts.put(batch)
        yield batch


@pytest.fixture
def casts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns that were cast, in order."""
    found: list[str] = []
    real = conform.cast_losslessly

    def cast(column: pa.Array, field: pa.Field, what: str) -> pa.Array:
        found.append(field.name)
        return real(column, field, what)

    monkeypatch.setattr(conform, "cast_losslessly", cast)
    return found


def test_operators_tables_and_sinks_do_not_cast_what_was_cast_before(
    tmp_path: Path, casts: list[str]
) -> None:
    links = (
        ChainLink(OperatorStep("narrow", Narrow())),
        ChainLink(OperatorStep("count", Count()), parent=0),
        ChainLink(SinkStep("parquet", ls.ParquetSink(f"file://{tmp_path}/a"), SCHEMA), parent=1),
        ChainLink(SinkStep("json", ls.JsonLinesSink(f"file://{tmp_path}/b"), SCHEMA), parent=1),
    )
    backend = ls.ParquetBackend(f"file://{tmp_path}/checkpoints")
    plan = EpochPlan("job", Epoch(1), Generation(1), None, None, Epoch(1), processing_time_us=0)
    run = SubtaskRun(StagePlan("stage", 1, links), 0, plan, backend)
    assert list(run.run([("", NARROW)])) == []
    assert run.report.metrics["parquet"].rows_in == 1
    assert casts == ["n"]


def test_rows_that_have_the_schema_are_handed_on_as_they_are(casts: list[str]) -> None:
    batch = conform_output(NARROW, SCHEMA, "op")
    assert conform_output(batch, SCHEMA, "op") is batch
    assert conform_input(batch, SCHEMA, "input of op") is batch
    assert casts == ["n"]


def test_rows_that_have_the_schema_are_still_checked_for_required_values() -> None:
    required = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([1, None])], schema=required)
    with pytest.raises(OperatorError, match="output of op: a required column has no value: n"):
        conform_output(batch, required, "op")
