"""Sessions, in a harness, against DuckDB over all rows at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.operators.disorder import DisorderedEpoch, at, disordered_epochs, disturb
from tests.support.operators.window_answers import expected_sessions, second

import lakestate as ls
from lakestate.operators.windows import SessionAggregate
from lakestate.operators.windows.intervals import Intervals, merge_intervals, number_keys
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.testing import OperatorHarness
from lakestate.verification import verify


def sessions(emit: str = "final", lateness: str = "0 seconds", gap: str = "4 seconds") -> OperatorHarness:
    return OperatorHarness(operator_of(SessionAggregate, emit, lateness, gap), parallelism=2)


def operator_of(kind: type[SessionAggregate], emit: str, lateness: str, gap: str) -> SessionAggregate:
    operator: SessionAggregate = kind.over(
        "k string",
        "v bigint, ts timestamp",
        ls.Session(gap),
        emit=emit,
        allowed_lateness=lateness,
        n=ls.count(),
        total=ls.sum("v"),
        most=ls.max("v"),
        first=ls.min("ts"),
    )
    return operator


def row(key: str | None, second: float) -> dict[str, Any]:
    return {"k": key, "v": 1, "ts": at(second)}


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (row["k"], second(row["window_start"]), second(row["window_end"]), row["n"]) for row in rows
    )


def on_time(epoch: DisorderedEpoch) -> DisorderedEpoch:
    """Without rows behind the watermark of the epoch before: what they join depends on what is closed."""
    kept = [
        row
        for row in epoch.rows
        if epoch.previous is None or row["ts"] is None or row["ts"] >= at(epoch.previous)
    ]
    return DisorderedEpoch(kept, epoch.watermark, epoch.previous)


@pytest.mark.parametrize("seed", range(12))
def test_sessions_are_those_of_all_rows_at_once(seed: int) -> None:
    rng = random.Random(seed)
    gap, lateness, emit = (1.5, 4)[seed % 2], (0, 7)[seed // 2 % 2], ("final", "changes")[seed // 6]
    harness = sessions(emit, f"{lateness} seconds", f"{gap} seconds")
    rows: list[dict[str, Any]] = []
    came: dict[Any, dict[str, Any]] = {}
    for epoch in map(on_time, disordered_epochs(rng)):
        disturb(harness, rng, epoch)
        rng.shuffle(epoch.rows)
        watermark = None if epoch.watermark is None else at(epoch.watermark)
        collect(came, harness.epoch(epoch.table, watermark=watermark))
        rows += epoch.rows
    collect(came, harness.drain())
    assert sorted(came.values(), key=str) == expected_sessions(rows, gap)
    if emit == "final":
        assert (harness.rows("sessions"), harness.rows("deadlines")) == ([], [])


def collect(came: dict[Any, dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Apply rows, each of which must fit what is there."""
    for found in rows:
        change = found.pop("_change", "insert")
        key = (found["k"], found["window_start"])
        if change in ("delete", "update_preimage"):
            assert came.pop(key) == found
        else:
            assert key not in came
            came[key] = found


class RemovedSessions(SessionAggregate):
    """As sessions were stored at first: without a time to live, and removed when they were over."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        config = self.sessions.config
        self.sessions = ls.KeyedTable(
            config.name,
            key=pa.schema(arrow_fields(config.key_columns)),
            value=pa.schema(arrow_fields(config.value_columns)),
            route_by=config.routing_columns,
            meanings=self._plan.meanings,
        )

    def _close(self, ctx: ls.OperatorContext) -> Iterator[pa.Table]:
        yield from super()._close(ctx)
        view, now_us = ctx.view("sessions"), ctx.watermark_us
        for stored in list(view.scan()) if now_us is not None else []:
            ends = pc.add(stored["last_row"].cast(pa.int64()), self._open_us)
            over = stored.filter(pc.less_equal(ends, now_us))
            view.delete(over.select(["k", "session_start"]))


@pytest.mark.parametrize("seed", range(8))
def test_a_job_whose_sessions_were_removed_goes_on(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    emit, lateness = ("final", "changes")[seed % 2], f"{(0, 7)[seed // 2 % 2]} seconds"
    backend = ls.ParquetBackend(tmp_path)
    before = operator_of(RemovedSessions, emit, lateness, "4 seconds")
    harness = OperatorHarness(before, parallelism=2, backend=backend)
    rows: list[dict[str, Any]] = []
    came: dict[Any, dict[str, Any]] = {}
    for number, epoch in enumerate(map(on_time, disordered_epochs(rng))):
        if number == 5:
            harness.restart(operator_of(SessionAggregate, emit, lateness, "4 seconds"))
        elif number > 5:
            disturb(harness, rng, epoch)
        watermark = None if epoch.watermark is None else at(epoch.watermark)
        collect(came, harness.epoch(epoch.table, watermark=watermark))
        rows += epoch.rows
    assert verify(backend, "harness").findings == ()
    collect(came, harness.drain())
    assert sorted(came.values(), key=str) == expected_sessions(rows, 4)


def test_sessions_that_are_over_leave_nothing_behind() -> None:
    harness = sessions()
    for number in range(8):
        harness.epoch([row(key, number * 10) for key in "abc"], watermark=at(number * 10 - 1))
        assert [second(each["session_start"]) for each in harness.rows("sessions")] == [number * 10] * 3
        assert harness.progress is not None
        assert harness.progress.state.row_count <= 2 * 2 * 3


def test_a_row_between_two_sessions_makes_them_one() -> None:
    harness = sessions("changes")
    harness.epoch([row("ann", 1), row("ann", 7)])
    assert [(each["_change"], *shown([each])[0][1:]) for each in harness.epoch([row("ann", 4)])] == [
        ("delete", 7, 11, 1),
        ("update_preimage", 1, 5, 1),
        ("update_postimage", 1, 11, 3),
    ]
    assert [second(each["session_start"]) for each in harness.rows("sessions")] == [1]


def test_a_row_before_a_session_moves_its_start() -> None:
    harness = sessions("changes")
    harness.epoch([row("ann", 10)])
    found = harness.epoch([row("ann", 7)])
    assert [(each["_change"], *shown([each])[0][1:]) for each in found] == [
        ("delete", 10, 14, 1),
        ("insert", 7, 14, 2),
    ]


def test_a_row_exactly_a_gap_later_begins_a_session() -> None:
    harness = sessions()
    harness.epoch([row("ann", 0), row("ann", 4), row("bob", 0), row("bob", 3.999999)])
    assert shown(harness.epoch(watermark=at(60))) == [
        ("ann", 0, 4, 1),
        ("ann", 4, 8, 1),
        ("bob", 0, 7.999999, 2),
    ]


def test_a_session_that_grows_is_open_until_its_new_end() -> None:
    harness = sessions()
    harness.epoch([row("ann", 0)], watermark=at(0))
    harness.epoch([row("ann", 3)], watermark=at(3.5))
    assert harness.epoch(watermark=at(4)) == []
    assert len(harness.rows("deadlines")) == 1
    assert shown(harness.epoch(watermark=at(7))) == [("ann", 0, 7, 2)]
    assert harness.rows("sessions") == []
    assert harness.rows("deadlines") == []


def test_a_row_whose_own_session_would_be_closed_is_late() -> None:
    harness = sessions(lateness="2 seconds")
    harness.epoch(watermark=at(10))
    assert harness.epoch([row("late", 4), row("ann", 4.5)], watermark=at(10.25)) == []
    assert shown(harness.epoch(watermark=at(10.5))) == [("ann", 4.5, 8.5, 1)]
    assert harness.rows("sessions") == []


@pytest.mark.parametrize("scale", [1, 2**52])
def test_intervals_of_many_keys_are_united_as_one_by_one(scale: int) -> None:
    rng = np.random.default_rng(3)
    ids, first = rng.integers(0, 9, 400), scale * rng.integers(-300, 300, 400)
    pieces = Intervals(ids, first, first + scale * rng.integers(0, 20, 400))
    united, places = merge_intervals(pieces, 3 * scale)
    expected: list[tuple[int, int, int]] = []
    for key, start, end in sorted(zip(ids.tolist(), first.tolist(), pieces.last.tolist(), strict=True)):
        if expected and expected[-1][0] == key and start - expected[-1][2] < 3 * scale:
            expected[-1] = (key, expected[-1][1], max(end, expected[-1][2]))
        else:
            expected.append((key, start, end))
    assert (
        list(zip(united.ids.tolist(), united.first.tolist(), united.last.tolist(), strict=True)) == expected
    )
    assert np.all((united.first[places] <= pieces.first) & (pieces.last <= united.last[places]))
    assert np.array_equal(united.ids[places], ids)


def test_keys_of_several_columns_are_numbered_with_nulls() -> None:
    keys = pa.table({"a": ["x", None, "x", "y", None], "b": [1, 1, 1, None, 1]})
    distinct, ids = number_keys(keys)
    assert distinct.take(pa.array(ids)).to_pylist() == keys.to_pylist()
    assert distinct.num_rows == 3
