from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.partitioning.partitioner import Partitioning
from lakestate.sinks.partitioning.paths import escape_path_name, partition_name

DAY_US = 86_400_000_000
FAR_US = 1_700_000_000_000 * 1_000_000
"""Milliseconds taken for seconds: the year 55840."""
YEAR_ONE_US = -62_135_596_800 * 1_000_000


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("DE", "c=DE"),
        ("a b", "c=a b"),
        ("a/b", "c=a%2Fb"),
        ("50%", "c=50%25"),
        ("é", "c=é"),
        ("x=y", "c=x%3Dy"),
        ("\n", "c=%0A"),
        ("{[^]}\\", "c=%7B%5B%5E%5D}%5C"),
        ("..", "c=.."),
        ("", "c=__HIVE_DEFAULT_PARTITION__"),
        (None, "c=__HIVE_DEFAULT_PARTITION__"),
        (7, "c=7"),
        (True, "c=true"),
        (date(2024, 2, 29), "c=2024-02-29"),
        (Decimal("1.50"), "c=1.50"),
        (Decimal("1E+3"), "c=1000"),
        (datetime(2024, 1, 2, 3, 4, 5), "c=2024-01-02 03%3A04%3A05"),
        (datetime(2024, 1, 2, 3, 4, 5, 120_000), "c=2024-01-02 03%3A04%3A05.12"),
    ],
)
def test_a_value_is_named_as_spark_names_it(value: Any, name: str) -> None:
    assert partition_name("c", value) == name


def test_every_character_that_hive_escapes_is_escaped() -> None:
    special = "\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32)))
    assert escape_path_name(special) == "".join(f"%{ord(each):02X}" for each in special)


def test_rows_keep_their_order_within_a_partition() -> None:
    rows = pa.record_batch({"c": ["b", "a", None, "b", "", "a"], "n": range(6)})
    found = {path: part["n"].to_pylist() for path, part in Partitioning(("c",)).split(rows, None)}
    assert found == {"c=a": [1, 5], "c=b": [0, 3], "c=__HIVE_DEFAULT_PARTITION__": [2, 4]}


def test_columns_and_event_time_make_one_path_in_the_order_given() -> None:
    times = pa.array([0, DAY_US, None, DAY_US + 1], pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"c": ["x", "x", "x", "y"], "t": times, "n": range(4)})
    by = Partitioning((EventTime("%Y/%m/%d"), "c"))
    assert {path: part["n"].to_pylist() for path, part in by.split(rows, "t")} == {
        "1970/01/01/c=x": [0],
        "1970/01/02/c=x": [1],
        "1970/01/02/c=y": [3],
        "unknown-time/unknown-time/unknown-time/c=x": [2],
    }


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("day=%Y-%m-%d", "day=__HIVE_DEFAULT_PARTITION__"),
        ("year=%Y/month=%m", "year=__HIVE_DEFAULT_PARTITION__/month=__HIVE_DEFAULT_PARTITION__"),
        ("%Y/%m/%d", "unknown-time/unknown-time/unknown-time"),
        ("events/day=%Y%m%d/v=1", "events/day=__HIVE_DEFAULT_PARTITION__/v=1"),
        ("%Y=%m", "unknown-time"),
    ],
)
def test_rows_without_event_time_go_where_readers_look(pattern: str, path: str) -> None:
    rows = pa.record_batch({"t": pa.nulls(1, pa.timestamp("us", "UTC")), "n": [1]})
    [(found, _)] = Partitioning((EventTime(pattern),)).split(rows, "t")
    assert found == path


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("%Y", ["55840", "-51901", "0000", "1970", "294247"]),
        ("%Y-%m", ["55840-11", "-51901-02", "0000-12", "1970-01", "294247-01"]),
        ("%m-%d/%H", ["11-08/22", "02-22/01", "12-31/23", "01-01/00", "01-10/04"]),
        ("%d-%H-%M", ["08-22-13", "22-01-46", "31-23-59", "01-00-00", "10-04-00"]),
    ],
)
def test_times_outside_of_the_calendar_of_datetime_have_paths(pattern: str, paths: list[str]) -> None:
    times_us = [FAR_US, -FAR_US, YEAR_ONE_US - 1, 0, 2**63 - 1]
    rows = pa.record_batch({"t": pa.array(times_us, pa.timestamp("us", "UTC")), "n": range(5)})
    found = {
        number: path
        for path, part in Partitioning((EventTime(pattern),)).split(rows, "t")
        for number in part["n"].to_pylist()
    }
    assert [found[number] for number in range(5)] == paths
    ends = [EventTime(pattern).end_us(time_us) for time_us in times_us]
    assert all(time_us < end_us for time_us, end_us in zip(times_us[:-1], ends, strict=False))
    assert ends[-1] == 2**63 - 1


def test_the_earliest_times_of_all_have_a_path_too() -> None:
    for pattern in ("%Y", "%Y-%m", "%d", "%H", "%M"):
        times = pa.array([-(2**63), -(2**63) + 1], pa.timestamp("us"))
        assert Partitioning((EventTime(pattern),)).split(pa.record_batch({"t": times}), "t")
        assert EventTime(pattern).end_us(-(2**63)) < 0


def test_dates_and_times_outside_of_the_calendar_of_datetime_are_named_as_spark_names_them() -> None:
    rows = pa.record_batch(
        {
            "d": pa.array([20_000_000, 0, None, -20_000_000], pa.date32()),
            "t": pa.array([FAR_US, 120_000, None, -FAR_US], pa.timestamp("us", "UTC")),
        }
    )
    assert sorted(path for path, _ in Partitioning(("d", "t")).split(rows, None)) == [
        "d=+56728-02-22/t=+55840-11-08 22%3A13%3A20",
        "d=-52789-11-11/t=-51901-02-22 01%3A46%3A40",
        "d=1970-01-01/t=1970-01-01 00%3A00%3A00.12",
        "d=__HIVE_DEFAULT_PARTITION__/t=__HIVE_DEFAULT_PARTITION__",
    ]


def test_a_batch_of_one_partition_is_not_copied() -> None:
    rows = pa.record_batch({"c": ["x"] * 3, "n": range(3)})
    [(path, part)] = Partitioning(("c",)).split(rows, None)
    assert path == "c=x"
    assert part is rows


def test_dictionary_columns_are_partitioned_by_their_values() -> None:
    column = pa.array(["x", "y", None, "x"]).dictionary_encode()
    rows = pa.record_batch({"c": column, "n": range(4)})
    found = {path: part["n"].to_pylist() for path, part in Partitioning(("c",)).split(rows, None)}
    assert found == {"c=x": [0, 3], "c=y": [1], "c=__HIVE_DEFAULT_PARTITION__": [2]}


@pytest.mark.parametrize(
    ("pattern", "moment", "end"),
    [
        ("%Y", datetime(2024, 5, 6), datetime(2025, 1, 1)),
        ("%Y-%m", datetime(2024, 12, 6), datetime(2025, 1, 1)),
        ("%Y/%m/%d", datetime(2024, 2, 29, 23), datetime(2024, 3, 1)),
        ("%Y%m%d%H", datetime(2024, 2, 29, 23, 59), datetime(2024, 3, 1)),
        ("%d/%H-%M", datetime(1969, 12, 31, 23, 59, 30), datetime(1970, 1, 1)),
    ],
)
def test_a_period_ends_where_the_next_begins(pattern: str, moment: datetime, end: datetime) -> None:
    time_us = round(moment.replace(tzinfo=UTC).timestamp() * 1_000_000)
    assert EventTime(pattern).end_us(time_us) == round(end.replace(tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize("pattern", ["", "day", "%y", "%Y/../%d", "/%Y", "%Y/", "100%"])
def test_a_pattern_that_is_not_a_path_of_times_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInputError):
        EventTime(pattern)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (("missing",), "rows do not have: missing"),
        (("price",), "of this type: price"),
        (("c", "c"), "given twice"),
        ((EventTime(),), "event-time column is not a timestamp: c"),
    ],
)
def test_rows_that_cannot_be_partitioned_are_refused(by: tuple[str | EventTime, ...], expected: str) -> None:
    schema = pa.schema([("c", pa.string()), ("price", pa.float64())])
    with pytest.raises(InvalidInputError, match=expected):
        Partitioning(by).check(schema, "c")
