"""The pytest plugin with operators that follow time, and with operators with two inputs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.testing.plugin import (  # noqa: F401 - a fixture
    FAILS_WITHOUT_FAULTS,
    Left,
    OperatorJob,
    Right,
    Seen,
    SurviveFaults,
    survive_faults,
)
from lakestate.testing.simulation import Scenario, run_seed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS = [{"user": f"user-{n % 3}", "ts": NOON + timedelta(seconds=n)} for n in range(12)]


class Clock(ls.Operator):
    """Yields what it knows of time in every epoch, so that an oracle must know all of it."""

    output = "epoch bigint, rows bigint, watermark timestamp, before timestamp, is_last boolean"
    counts = ls.KeyedTable(key="user string", value="n bigint")

    def on_start(self, ctx):
        self.number = 0

    def process_batch(self, batch, ctx):
        self.number += batch.num_rows

    def on_epoch_end(self, ctx):
        if self.number or ctx.watermark != ctx.previous_watermark or ctx.is_last:
            row = [ctx.epoch, self.number, ctx.watermark, ctx.previous_watermark, ctx.is_last]
            yield pa.Table.from_pylist([dict(zip(self.declared.names, row, strict=True))], self.declared)

    @property
    def declared(self) -> pa.Schema:
        schema = self.output_schema
        assert schema is not None
        return schema


def ticks(seen: Seen) -> list[dict[str, Any]]:
    befores = [None, *[epoch.watermark_us for epoch in seen.epochs]]
    return [
        {
            "rows": len(epoch.rows),
            "watermark": at(epoch.watermark_us),
            "before": at(before),
            "is_last": epoch.is_last,
        }
        for epoch, before in zip(seen.epochs, befores, strict=False)
        if epoch.rows or epoch.watermark_us != before or epoch.is_last
    ]


def at(time_us: int | None) -> datetime | None:
    return None if time_us is None else datetime.fromtimestamp(time_us / 1e6, UTC)


def clock_job(oracle=ticks) -> OperatorJob:
    return OperatorJob(Clock, ROWS, event_time="ts", output=oracle, ignored="epoch")


def test_an_oracle_knows_the_rows_and_the_watermark_of_every_epoch() -> None:
    for seed in range(12):
        scenario = Scenario(
            rows=12, rows_per_epoch=4, parallelism=(1,), silences=True, ends_later=seed % 2 == 0
        )
        assert run_seed(seed, scenario=scenario, make_job=lambda *_: clock_job()).violation is None


def test_an_oracle_that_forgets_epochs_without_rows_is_wrong() -> None:
    def with_rows(seen):
        return [row for row in ticks(seen) if row["rows"]]

    scenario = Scenario(rows=12, rows_per_epoch=4, parallelism=(1,), ends_later=True)
    found = run_seed(1, scenario=scenario, make_job=lambda *_: clock_job(with_rows))
    assert "early or invented: {" in str(found.violation)
    assert "'is_last': True, 'rows': 0" in str(found.violation)


class Pairs(ls.TwoInputOperator):
    """Every left row with every right row of its user, once both are there."""

    output = "user string, item string, name string"
    items = ls.TimeKeyTable(key="user string", value="item string, ts timestamp", time="ts")
    names = ls.TimeKeyTable(key="user string", value="name string, at timestamp", time="at")

    def process_left(self, batch, ctx):
        yield self.pair(batch, pa.Table.from_pylist(self.names.to_pylist()))
        self.items.insert(batch)

    def process_right(self, batch, ctx):
        yield self.pair(pa.Table.from_pylist(self.items.to_pylist()), batch)
        self.names.insert(batch)

    def pair(self, left, right):
        pairs = [
            {"user": one["user"], "item": one["item"], "name": other["name"]}
            for one in left.to_pylist()
            for other in right.to_pylist()
            if one["user"] == other["user"]
        ]
        return pa.Table.from_pylist(pairs, self.output_schema)


def pairs(seen: Seen) -> list[dict[str, Any]]:
    return [
        {"user": left["user"], "item": left["item"], "name": right["name"]}
        for left in seen.left
        for right in seen.right
        if left["user"] == right["user"]
    ]


def kept(seen: Seen) -> dict[str, Any]:
    return {"items": seen.left, "names": seen.right}


def sided(number: int) -> Left | Right:
    user, time = f"user-{number % 3}", NOON + timedelta(seconds=number)
    if number % 5 < 3:
        return Left(user=user, item=f"item {number}", ts=time)
    return Right(user=user, name=f"name {number}", at=time)


SIDED = [sided(number) for number in range(16)]


def test_both_inputs_of_an_operator_are_run(survive_faults: SurviveFaults) -> None:  # noqa: F811
    survive_faults(Pairs, SIDED, event_time=("ts", "at"), state=kept, output=pairs, seeds=6)


def test_a_join_that_forgets_one_side_is_found_out(survive_faults: SurviveFaults) -> None:  # noqa: F811
    class OneSided(Pairs):
        def process_right(self, batch, ctx):
            self.names.insert(batch)

    with pytest.raises(pytest.fail.Exception, match=FAILS_WITHOUT_FAULTS):
        survive_faults(OneSided, SIDED, event_time=("ts", "at"), output=pairs, seeds=6)


@pytest.mark.parametrize(
    ("operator", "rows", "times", "told"),
    [
        (Pairs, ROWS, "ts", r"a row of no input of the operator: Pairs; found dict .* expected Left\(…\) or"),
        (Clock, SIDED, "ts", r"a row of no input of the operator: Clock; found Left .* expected a dict"),
        (Pairs, [row for row in SIDED if "ts" in row], ("ts", "at"), "expected some right rows"),
        (Pairs, SIDED, "ts", "a row lacks a column that the job needs; .* expected ts"),
        (Clock, ROWS, ("ts", "at"), "more columns with the event time than inputs; found ts, at"),
    ],
)
def test_rows_that_no_input_takes_are_refused(operator, rows, times, told) -> None:
    with pytest.raises(InvalidInputError, match=told):
        SurviveFaults("here")(operator, rows, event_time=times, output=lambda seen: [])


def test_an_output_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="an oracle returned a value that no output has: output"):
        SurviveFaults("here")(Clock, ROWS, output=lambda seen: [{"rows": object()}], seeds=1)
