"""Random rows, and what DuckDB says of all of them at once: the answers that aggregates must end at."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

import lakestate as ls

COLUMNS = "n bigint, x double, d decimal(10,2), t string, b boolean, ts timestamp"
SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(10, 2)),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
_START = datetime(2026, 1, 1, tzinfo=UTC)

AGGREGATES: dict[str, tuple[ls.Aggregate, str]] = {
    "rows": (ls.count(), "count(*)"),
    "numbers": (ls.count("n"), "count(n)"),
    "total": (ls.sum("n"), "sum(n)::BIGINT"),
    "exact": (ls.sum("d"), "sum(d)::DECIMAL(20,2)"),
    "average": (ls.mean("n"), "avg(n)"),
    "spread": (ls.variance("n"), "var_samp(n)"),
    "deviation": (ls.stddev("n"), "stddev_samp(n)"),
    "float_total": (ls.sum("x"), "sum(x)"),
    "float_average": (ls.mean("x"), "avg(x)"),
    "least": (ls.min("t"), "min(t)"),
    "most": (ls.max("x"), "max(x) FILTER (WHERE NOT isnan(x))"),
    "every": (ls.bool_and("b"), "bool_and(b)"),
    "some": (ls.bool_or("b"), "bool_or(b)"),
    "at_least": (ls.min_by("t", "n"), "first(t ORDER BY n, t NULLS LAST) FILTER (WHERE n IS NOT NULL)"),
    "at_most": (
        ls.max_by("t", "x"),
        "first(t ORDER BY x DESC, t DESC NULLS LAST) FILTER (WHERE x IS NOT NULL AND NOT isnan(x))",
    ),
    "opened": (ls.first("n"), "first(n ORDER BY ts, n NULLS LAST) FILTER (WHERE ts IS NOT NULL)"),
    "closed": (ls.last("t"), "first(t ORDER BY ts DESC, t DESC NULLS LAST) FILTER (WHERE ts IS NOT NULL)"),
    "listed": (
        ls.collect_list("n", limit=5),
        "coalesce(list(n ORDER BY n) FILTER (WHERE n IS NOT NULL), [])[1:5]",
    ),
    "set_of": (ls.collect_set("t"), "coalesce(list_sort(list(DISTINCT t) FILTER (WHERE t IS NOT NULL)), [])"),
    "texts": (ls.count_distinct("t"), "count(DISTINCT t)"),
    "floats": (ls.count_distinct("x"), "count(DISTINCT x)"),
}
"""Each aggregate, and the same in DuckDB."""


def aggregates() -> dict[str, ls.Aggregate]:
    """All of them by name."""
    return {name: aggregate for name, (aggregate, _) in AGGREGATES.items()}


def random_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows with nulls everywhere, NaN, both zeros, ties, and equal rows."""
    return [
        {
            "user": rng.choice(["ann", "bob", "cid", None]),
            "n": rng.choice([None, rng.randrange(-5, 20), rng.randrange(10**6, 10**6 + 5)]),
            "x": rng.choice(
                [None, math.nan, math.inf, 0.0, -0.0, *(rng.randrange(8) / 4 for _ in range(20))]
            ),
            "d": rng.choice([None, Decimal(rng.randrange(-500, 500)) / 100]),
            "t": rng.choice([None, "", "a", "b", "ü", "zz"]),
            "b": rng.choice([None, True, False]),
            "ts": rng.choice([None, _START + timedelta(seconds=rng.randrange(20))]),
        }
        for _ in range(count)
    ]


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as Arrow."""
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def expected_results(rows: list[dict[str, Any]]) -> dict[str | None, dict[str, Any]]:
    """What DuckDB answers, by user."""
    if not rows:
        return {}
    connection = duckdb.connect()
    connection.register("rows", as_table(rows))
    columns = ", ".join(f"{sql} AS {name}" for name, (_, sql) in AGGREGATES.items())
    found = connection.sql(f'SELECT "user", {columns} FROM rows GROUP BY ALL').to_arrow_table()
    return {row["user"]: row for row in found.to_pylist()}


def assert_same(found: dict[str | None, dict[str, Any]], expected: dict[str | None, dict[str, Any]]) -> None:
    """Compare all results, those that are rounded within a relative error of 1e-9."""
    assert found.keys() == expected.keys()
    for user, row in expected.items():
        for name, value in row.items():
            other = found[user][name]
            if isinstance(value, float) and isinstance(other, float):
                assert math.isnan(other) == math.isnan(value), (user, name, other, value)
                assert math.isnan(value) or math.isclose(other, value, rel_tol=1e-9, abs_tol=1e-3), (
                    user,
                    name,
                    other,
                    value,
                )
            else:
                assert other == value, (user, name, other, value)
