"""What windows over disordered rows must be: DuckDB over all rows at once.

Each row has the watermark of the epoch before the one that it came in, in seconds after the start.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
from tests.support.operators.disorder import SCHEMA, at

_TIMED = "(SELECT *, epoch(ts) - epoch(TIMESTAMPTZ '2026-01-01') AS t FROM given)"
_RESULTS = "count(*) AS n, CAST(sum(v) AS BIGINT) AS total, max(v) AS most, min(ts) AS first"


def second(time: datetime) -> float:
    """Seconds after the start."""
    return (time - at(0)).total_seconds()


def expected_windows(
    rows: list[dict[str, Any]], size: float, hop: float, lateness: float
) -> list[dict[str, Any]]:
    """All windows of rows. A row counts in those that were open when it came."""
    return _ask(
        rows,
        f"""
        SELECT k, TIMESTAMPTZ '2026-01-01' + to_seconds(s) AS window_start,
               TIMESTAMPTZ '2026-01-01' + to_seconds(s + {size}) AS window_end, {_RESULTS}
        FROM {_TIMED}, (SELECT unnest(generate_series(-1000, 1000)) * {hop} AS s)
        WHERE s <= t AND t < s + {size} AND (previous IS NULL OR s + {size} + {lateness} > previous)
        GROUP BY ALL
        """,
    )


def expected_sessions(rows: list[dict[str, Any]], gap: float) -> list[dict[str, Any]]:
    """All sessions of rows."""
    return _ask(
        rows,
        f"""
        WITH marked AS (
            SELECT *, coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) >= {gap}, true) AS begins
            FROM {_TIMED} WHERE t IS NOT NULL
        ), numbered AS (
            SELECT *, sum(begins::INT) OVER (
                PARTITION BY k ORDER BY t, begins DESC ROWS UNBOUNDED PRECEDING
            ) AS number FROM marked
        )
        SELECT k, min(ts) AS window_start, max(ts) + to_seconds({gap}) AS window_end, {_RESULTS}
        FROM numbered GROUP BY k, number
        """,
    )


def _ask(rows: list[dict[str, Any]], sql: str) -> list[dict[str, Any]]:
    given = pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field("previous", pa.float64())))
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", given)
        found: list[dict[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
        return sorted(found, key=str)
