"""Keyed functions: state, timers and rows of one key at a time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError, LakestateError
from lakestate.operators.keyed_function import KeyedFunctionOperator
from lakestate.operators.keyed_function.rows import key_groups, python_values
from lakestate.tables.arrow.schema import arrow_type
from lakestate.testing import OperatorHarness

START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = 1_767_225_600_000_000
ROWS = pa.schema([("device", pa.string()), ("value", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Silence(ls.KeyedFunction):
    """Says so when a device has sent nothing for five minutes."""

    output = "device string, since timestamp"
    timers = "event"
    last = ls.ValueState("timestamp")

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        state.last = max(filter(None, (state.last, rows[-1].ts)))
        state.timers.cancel()
        state.timers.at(state.last + timedelta(minutes=5))

    def on_timer(self, key: Any, time: datetime, state: Any) -> Any:
        yield key, state.last
        state.clear()


class Bag(ls.KeyedFunction):
    """All kinds of state."""

    output = "device string, n bigint, values array<bigint>, counts map<bigint,bigint>"
    n = ls.ValueState("bigint", default=0)
    values = ls.ListState("bigint")
    counts = ls.MapState("bigint", "bigint")

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        for row in rows:
            state.n += 1
            state.values.append(row.value)
            state.counts[row.value] = state.counts.get(row.value, 0) + 1
        yield {"device": key, "n": state.n, "values": state.values, "counts": list(state.counts.items())}


def harness(function: ls.KeyedFunction, parallelism: int = 2) -> OperatorHarness:
    return OperatorHarness(KeyedFunctionOperator(function, "device string", "ts"), parallelism=parallelism)


def table(*rows: tuple[str | None, int, float]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"device": device, "value": value, "ts": at(second)} for device, value, second in rows], schema=ROWS
    )


def test_silence_is_noticed_once_and_only_after_the_last_heartbeat() -> None:
    job = harness(Silence())
    job.epoch(table(("a", 1, 0), ("b", 1, 10), (None, 1, 0)))
    job.epoch(table(("a", 1, 200)), watermark=at(190))
    silent = sorted(job.epoch(watermark=at(310)), key=lambda row: row["since"])
    assert silent == [{"device": None, "since": at(0)}, {"device": "b", "since": at(10)}]
    job.rescale(3)
    assert job.epoch(watermark=at(499)) == []
    job.crash(watermark=at(500))
    assert job.epoch(watermark=at(500)) == [{"device": "a", "since": at(200)}]
    assert job.rows("state") == []
    assert job.rows("timers") == []


def test_state_is_kept_key_by_key() -> None:
    job = harness(Bag())
    job.epoch(table(("a", 1, 0), ("b", 5, 0)))
    job.rescale(1)
    assert job.epoch(table(("a", 2, 2), ("a", 1, 1))) == [
        {"device": "a", "n": 3, "values": [1, 1, 2], "counts": [(1, 2), (2, 1)]}
    ]
    assert sorted(job.rows("state"), key=str) == [
        {"device": "a", "n": 3, "values": [1, 1, 2], "counts": [(1, 2), (2, 1)]},
        {"device": "b", "n": 1, "values": [5], "counts": [(5, 1)]},
    ]


@pytest.mark.parametrize("seed", range(10))
def test_results_do_not_depend_on_the_order_of_rows_or_on_crashes(seed: int) -> None:
    choose = random.Random(seed)
    job, expected = harness(Bag(), choose.randint(1, 3)), {}
    for epoch in range(8):
        rows = [(choose.choice(["a", "b", None]), choose.randint(1, 3), epoch * 10 + choose.randint(0, 9))
                for _ in range(choose.randint(0, 12))]  # fmt: skip
        if choose.random() < 0.3:
            job.crash(table(*rows))
        if choose.random() < 0.3:
            job.rescale(choose.randint(1, 4))
        shuffled = rows[:]
        choose.shuffle(shuffled)
        job.epoch(table(*shuffled))
        for device, value, second in sorted(rows, key=lambda row: (row[2], row[0] or "", row[1])):
            del second
            expected.setdefault(device, []).append(value)
    found = {row["device"]: row["values"] for row in job.rows("state")}
    assert found == expected


def test_a_value_equal_to_its_default_is_not_stored() -> None:
    class Flip(ls.KeyedFunction):
        on = ls.ValueState("boolean", default=False)

        def process(self, key: Any, rows: Any, state: Any) -> None:
            state.on = not state.on

    job = harness(Flip())
    job.epoch(table(("a", 1, 0)))
    assert job.rows("state") == [{"device": "a", "on": True}]
    job.epoch(table(("a", 1, 0)))
    assert job.rows("state") == []


def test_after_counts_from_the_rows_or_from_the_timer() -> None:
    class Ticks(ls.KeyedFunction):
        output = "device string, tick timestamp"
        timers = "event"

        def process(self, key: Any, rows: Any, state: Any) -> None:
            state.timers.after("10 seconds")

        def on_timer(self, key: Any, time: datetime, state: Any) -> Any:
            yield {"device": key, "tick": time}
            if time < at(25):
                state.timers.after("10 seconds")

    job = harness(Ticks())
    job.epoch(table(("a", 1, 3), ("a", 1, 1)))
    ticks = [row["tick"] for row in job.epoch(watermark=at(60))]
    assert ticks == [at(13), at(23), at(33)]


def test_functions_that_cannot_work_are_refused() -> None:
    class NoTime(ls.KeyedFunction):
        def on_timer(self, key: Any, time: datetime, state: Any) -> None: ...

    class NoHook(ls.KeyedFunction):
        timers = "event"

    class Taken(ls.KeyedFunction):
        clear = ls.ValueState("int")

    for function, message in {
        NoTime: "does not say which time its timers follow",
        NoHook: "does not define on_timer",
        Taken: "a state has a name that is taken",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            KeyedFunctionOperator(function(), "device string")
    with pytest.raises(InvalidInputError, match="nested column"):
        KeyedFunctionOperator(Bag(), "device array<string>")


@pytest.mark.parametrize(
    ("yielded", "message"),
    [({"other": 1}, "columns that its output does not have"), ((1, 2, 3), "not a row of its output")],
)
def test_a_row_that_does_not_fit_the_output_is_refused(yielded: Any, message: str) -> None:
    class Wrong(ls.KeyedFunction):
        output = "device string"

        def process(self, key: Any, rows: Any, state: Any) -> Any:
            yield yielded

    with pytest.raises(LakestateError, match=message):
        harness(Wrong()).epoch(table(("a", 1, 0)))


def test_values_that_are_changed_in_place_are_stored() -> None:
    class Last(ls.KeyedFunction):
        seen = ls.ValueState("array<bigint>", default=[])
        point = ls.ValueState("struct<x:bigint>")

        def process(self, key: Any, rows: Any, state: Any) -> None:
            state.seen.extend(row.value for row in rows)
            state.point = state.point or {"x": 0}
            state.point["x"] += len(rows)

    job = harness(Last())
    job.epoch(table(("a", 1, 0), ("b", 9, 0)))
    job.epoch(table(("a", 2, 0)))
    assert sorted(job.rows("state"), key=str) == [
        {"device": "a", "seen": [1, 2], "point": {"x": 2}},
        {"device": "b", "seen": [9], "point": {"x": 1}},
    ]


def test_yielded_rows_may_be_tuples_lists_and_dicts() -> None:
    class Mixed(ls.KeyedFunction):
        output = "device string, n bigint"

        def process(self, key: Any, rows: Any, state: Any) -> Any:
            return [(key, 1), [key, 2], {"n": 3}, {}]

    assert harness(Mixed()).epoch(table(("a", 1, 0))) == [
        {"device": "a", "n": 1},
        {"device": "a", "n": 2},
        {"device": None, "n": 3},
        {"device": None, "n": None},
    ]


NAN = float("nan")
KEYS = {
    "string": ["a", "b", None, ""],
    "bigint": [1, 2, None, -(2**62), 2**62],
    "double": [0.0, -0.0, 1.5, NAN, None],
    "binary": [b"x", b"", None],
    "timestamp": [START, at(1), None],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-2.00"), None],
}


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_grouped_by_key_and_sorted_as_arrow_sorts_them(seed: int) -> None:
    choose = random.Random(seed)
    types = choose.sample(list(KEYS), choose.randint(1, 2))
    schema = pa.schema(
        [
            *((f"k{number}", arrow_type(type_)) for number, type_ in enumerate(types)),
            ("ts", pa.timestamp("us", tz="UTC")),
            ("x", pa.float64()),
            ("nothing", pa.null()),
            ("tags", pa.list_(pa.int64())),
        ]
    )
    rows = pa.table(
        [
            *([choose.choice(KEYS[type_]) for _ in range(80)] for type_ in types),
            [choose.choice([None, START, at(1), at(2)]) for _ in range(80)],
            [choose.choice([None, NAN, 0.5, -1.0]) for _ in range(80)],
            [None] * 80,
            [[choose.randint(0, 3)] for _ in range(80)],
        ],
        schema=schema,
    )
    key = schema.names[: len(types)]
    groups = key_groups(rows, key, "ts")
    names = ["ts", *key, "x"]
    arranged = rows.sort_by([(name, "ascending") for name in names]).select([*key, "ts", "x"])
    expected: dict[str, list[Any]] = {}
    for row in arranged.to_pylist():
        expected.setdefault(_same_text([row[name] for name in key]), []).append(f"{row['ts']} {row['x']}")
    found = {
        _same_text([getattr(rows[0], name) for name in key]): [f"{row.ts} {row.x}" for row in rows]
        for rows in groups
    }
    assert list(found.items()) == list(expected.items())
    latest = [
        None if us is None else START + timedelta(microseconds=us - START_US) for us in groups.latest_us
    ]
    assert latest == [max((row.ts for row in rows if row.ts is not None), default=None) for rows in groups]
    assert len(groups.keys) == len(found)


def _same_text(key: list[Any]) -> str:
    return ", ".join(str(0.0 if value == 0 else value) for value in key)


def test_the_order_of_rows_is_that_of_all_columns_whatever_the_order_they_come_in() -> None:
    choose = random.Random(1)
    rows = [{"k": choose.choice("ab"), "ts": at(0), "tags": [choose.randint(0, 9)]} for _ in range(40)]
    schema = pa.schema({"k": pa.string(), "ts": pa.timestamp("us", tz="UTC"), "tags": pa.list_(pa.int64())})
    one = key_groups(pa.Table.from_pylist(rows, schema=schema), ["k"], "ts")
    choose.shuffle(rows)
    assert list(one) == list(key_groups(pa.Table.from_pylist(rows, schema=schema), ["k"], "ts"))


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_become_the_datetimes_that_arrow_makes_of_them(zone: str | None) -> None:
    micros = [0, -1, 1_767_225_600_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999]
    for values in (micros, [*micros, None], []):
        column = pa.array(values, pa.int64()).cast(pa.timestamp("us", tz=zone))
        assert [str(value) for value in python_values(column)] == [str(value) for value in column.to_pylist()]
