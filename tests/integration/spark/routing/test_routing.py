"""Routing keys and subtasks, computed by us and by Spark itself, must be equal bit for bit."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakestate.protocol.key_ranges import subtask_of, subtask_sql
from lakestate.tables.hashing.routing import routing_keys, subtasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARALLELISMS = [1, 2, 3, 7, 64, 200, 1000, 32767, 32768]
UTC = datetime.UTC


def integers(bits: int) -> list[int | None]:
    choose = random.Random(bits)
    edges = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    return [*edges, None, *(choose.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) for _ in range(200))]


def floats(width: type[np.floating]) -> pa.Array:
    info = np.finfo(width)
    edges = [
        0.0,
        -0.0,
        1.5,
        -1.5,
        np.inf,
        -np.inf,
        np.nan,
        -np.nan,
        info.max,
        info.min,
        info.smallest_subnormal,
    ]
    return pa.array([*np.array(edges, dtype=width), None], pa.from_numpy_dtype(width))


def decimals(precision: int, scale: int) -> pa.Array:
    choose = random.Random(precision)
    limit = 10**precision
    powers = [sign * (2**bits + step) for bits in range(128) for step in (-1, 0, 1) for sign in (1, -1)]
    unscaled = [value for value in powers if abs(value) < limit]
    unscaled += [limit - 1, 1 - limit, *(choose.randrange(1 - limit, limit) for _ in range(100))]
    context = decimal.Context(prec=60)
    values = [decimal.Decimal(value).scaleb(-scale, context) for value in unscaled]
    return pa.array([*values, None], pa.decimal128(precision, scale))


def strings() -> list[str | None]:
    choose = random.Random(7)
    ascii_ = ["".join(choose.choices("abc xyz019", k=length)) for length in range(200)]
    return ["", None, *ascii_, "ключ", "鍵", "🔑" * 20, "\0", "x" * 1023, "x" * 1024, "x" * 5000]


def instants() -> list[datetime.datetime | None]:
    return [
        datetime.datetime(1970, 1, 1, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime.datetime(2026, 2, 28, 12, 30, 15, 123_456, tzinfo=UTC),
        datetime.datetime(1, 1, 1, tzinfo=UTC),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        None,
    ]


def structs() -> pa.Array:
    fields = pa.struct(
        [("user", pa.string()), ("item", pa.struct([("id", pa.int64()), ("size", pa.int16())]))]
    )
    rows = [{"user": "a", "item": {"id": 1, "size": 2}}, {"user": None, "item": None}, None]
    return pa.array([*rows, {"user": "b", "item": {"id": None, "size": -3}}], fields)


COLUMNS = {
    "boolean": pa.array([True, False, None]),
    "byte": pa.array(integers(8), pa.int8()),
    "short": pa.array(integers(16), pa.int16()),
    "integer": pa.array(integers(32), pa.int32()),
    "long": pa.array(integers(64), pa.int64()),
    "float": floats(np.float32),
    "double": floats(np.float64),
    "decimal_9": decimals(9, 2),
    "decimal_18": decimals(18, 0),
    "decimal_19": decimals(19, 3),
    "decimal_38": decimals(38, 10),
    "string": pa.array(strings()),
    "binary": pa.array([text and text.encode() for text in strings()], pa.binary()),
    "date": pa.array([value and value.date() for value in instants()], pa.date32()),
    "timestamp": pa.array(instants(), pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array(
        [value and value.replace(tzinfo=None) for value in instants()], pa.timestamp("us")
    ),
    "interval": pa.array([0, 1, -1, 86_400_000_000, None], pa.duration("us")),
    "struct": structs(),
    "array": pa.array([[1, 2, 3], [], None, [None, 5], [7] * 40], pa.list_(pa.int64())),
    "array_of_strings": pa.array([["a", None, "bc"], [], None, ["x" * 50]], pa.list_(pa.string())),
}


def spark_keys(spark: SparkSession, table: pa.Table) -> list[int]:
    numbered = table.append_column("row", pa.array(range(len(table)), pa.int64()))
    names = ", ".join(table.column_names)
    rows = spark.createDataFrame(numbered).selectExpr("row", f"xxhash64({names}) as key").orderBy("row")
    return [row.key % 2**64 for row in rows.collect()]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_hashes_as_in_spark(spark: SparkSession, name: str) -> None:
    table = pa.table({"k": COLUMNS[name]})
    assert routing_keys([COLUMNS[name]]).tolist() == spark_keys(spark, table)


def test_several_columns_chain_as_in_spark(spark: SparkSession) -> None:
    columns = {}
    for name, column in COLUMNS.items():
        columns[name] = column.take(pa.array([row % len(column) for row in range(300)]))
    expected = spark_keys(spark, pa.table(columns))
    assert routing_keys(list(columns.values())).tolist() == expected


def test_a_missing_value_of_no_type_leaves_the_seed_as_in_spark(spark: SparkSession) -> None:
    [row] = spark.sql("select xxhash64(null) as alone, xxhash64(null, 7, null) as between").collect()
    seven = pa.array([7], pa.int32())
    assert row.alone % 2**64 == routing_keys([pa.nulls(1)])[0]
    assert row.between % 2**64 == routing_keys([pa.nulls(1), seven, pa.nulls(1)])[0]


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_python_numpy_and_spark_agree_on_the_subtask(spark: SparkSession, parallelism: int) -> None:
    choose = random.Random(parallelism)
    borders = [
        -(-(number << 32) // parallelism) << 32 for number in range(0, parallelism, max(parallelism // 50, 1))
    ]
    extremes = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2**32, 2**64 - 1]
    keys = [*extremes, *borders, *(border - 1 for border in borders[1:])]
    keys += [choose.randrange(2**64) for _ in range(200)]
    signed = pa.table({"row": range(len(keys)), "key": np.array(keys, dtype=np.uint64).view(np.int64)})
    query = spark.createDataFrame(signed).selectExpr("row", f"{subtask_sql('key', parallelism)} as subtask")
    by_spark = [row.subtask for row in query.orderBy("row").collect()]
    by_python = [subtask_of(key, parallelism) for key in keys]
    by_numpy = subtasks_of(np.array(keys, dtype=np.uint64), parallelism).tolist()
    assert by_spark == by_python == by_numpy
    assert (min(by_python), max(by_python)) == (0, parallelism - 1)
