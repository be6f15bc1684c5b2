"""Running aggregates on Spark: expressions, kinds of rows, and exact results against Spark SQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.repository import ROOT
from tests.support.spark.pipelines import (
    EVENTS_DDL,
    events,
    read_output,
    read_stream,
    run_available,
    write_input,
)

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind
from lakestate.spark.execution import combining

ITEM = "CAST(CAST(amount AS INT) % 7 AS STRING) AS item"
ROWS = f"(SELECT *, {ITEM} FROM rows)"


def pipeline_over(spark: Any, folder: Path) -> tuple[ls.Pipeline, Any]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=2, cache_dir=folder / "cache")
    return pipeline, pipeline.source(read_stream(spark, folder / "in"), event_time="ts")


def newest_rows(folder: Path, key: str) -> list[dict[str, Any]]:
    newest: dict[Any, dict[str, Any]] = {}
    for row in sorted(read_output(folder), key=lambda row: row["n"]):
        newest[row[key]] = row
    return sorted(newest.values(), key=str)


@pytest.mark.parametrize("rows_min", [combining.ROWS_MIN, 1], ids=["routed first", "combined first"])
def test_updates_end_at_what_spark_sql_says_of_all_rows(
    spark: Any, tmp_path: Path, rows_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combining, "ROWS_MIN", rows_min)
    monkeypatch.setattr(combining, "LEFT_MAX", 1)
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 400))
    pipeline, source = pipeline_over(spark, tmp_path)
    totals = source.key_by("upper(user) AS who").aggregate(
        "totals",
        n=ls.count(),
        large=ls.count(where="amount > 50"),
        euros=ls.sum("amount * 4"),
        average=ls.mean("amount"),
        latest=ls.max("ts"),
    )
    assert (totals.kind.kind, totals.kind.key) == (RowKind.UPSERT, ("who",))
    totals.as_log().sink("out", ls.ParquetSink(tmp_path / "out"))
    query = run_available(pipeline, finish_files=True)
    assert [progress.rows_total for progress in query.recentProgress][:3] == [400, 400, 400]
    spark.read.schema(EVENTS_DDL).parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    expected = spark.sql(
        "SELECT upper(user) AS who, count(1) AS n, count_if(amount > 50) AS large, sum(amount * 4) AS euros, "
        "avg(amount) AS average, max(ts) AS latest FROM rows GROUP BY ALL"
    ).toArrow()
    assert newest_rows(tmp_path / "out", "who") == sorted(expected.to_pylist(), key=str)


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    _, source = pipeline_over(spark, tmp_path)
    keyed = source.key_by("user")
    for build, message in {
        lambda: keyed.aggregate("a", n=ls.sum("amonut")): "names a column that the rows do not have: amonut",
        lambda: keyed.aggregate("a", n=ls.sum("amount +")): "an expression of aggregate a does not fit",
        lambda: keyed.aggregate("a", n=ls.sum("user")): "found string; expected a number",
        lambda: keyed.aggregate("a", user=ls.count()): "an aggregate has the name of a key column",
        lambda: keyed.aggregate("a"): "an aggregate needs something to compute",
        lambda: keyed.aggregate("a", emit="final", n=ls.count()): "a running aggregate is never final",
        lambda: keyed.aggregate("a", emit="all", n=ls.count()): "unknown emission",
        lambda: keyed.aggregate("a0", n=ls.count()).sink("out", ls.ParquetSink(tmp_path / "out")): (
            r"sink out cannot take rows that change; found updates by user; .* call as_log\(\) first"
        ),
        lambda: keyed.aggregate("a1", n=ls.count()).transform(lambda rows: rows): "a transform cannot take",
        lambda: keyed.aggregate("a2", n=ls.count()).select("n"): "select leaves out columns",
        lambda: keyed.aggregate("a", n=ls.variance("user")): "found string; expected a number",
        lambda: keyed.aggregate("a", _rows=ls.count()): "the name is taken",
        lambda: source.select("user", "amount").key_by("user").aggregate("a", x=ls.last("amount")): (
            "an aggregate needs event time, and the rows have none"
        ),
        lambda: keyed.aggregate("a3", n=ls.count()).key_by("n").aggregate("b", m=ls.count()): (
            r'aggregate b cannot take rows that change; found updates by user; .* pass emit="changes"'
        ),
        lambda: (
            keyed.aggregate("a4", emit="changes", n=ls.count())
            .key_by("n")
            .aggregate("b", emit="updates", m=ls.count())
        ): "updates cannot say that a key is gone",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()


def test_select_and_where_take_expressions(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 50).slice(0, 50))
    pipeline, source = pipeline_over(spark, tmp_path)
    source.where("amount > 20").select("user", "amount * 2 AS twice").sink(
        "out", ls.ParquetSink(tmp_path / "out")
    )
    run_available(pipeline, finish_files=True)
    rows = [row for row in events(0, 50).to_pylist() if row["amount"] > 20]
    expected = [{"user": row["user"], "twice": row["amount"] * 2} for row in rows]
    assert sorted(read_output(tmp_path / "out"), key=str) == sorted(expected, key=str)


def test_all_aggregates_with_filters_end_at_what_spark_sql_says(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        write_input(tmp_path / "in", number, events(number, 300))
    pipeline, source = pipeline_over(spark, tmp_path)
    source = source.select("*", ITEM)
    merged_by_spark = {
        "n": ls.count(),
        "spread": ls.variance("amount", where="amount > 10"),
        "who": ls.max_by("item", "amount"),
        "least": ls.min_by("item", "amount", where="amount > 30"),
        "opened": ls.first("amount"),
        "closed": ls.last("item", where="amount > 10"),
    }
    in_python = merged_by_spark | {
        "items": ls.count_distinct("item"),
        "large": ls.count_distinct("item", where="amount > 50"),
        "some": ls.collect_set("item", where="amount > 80", limit=3),
        "span": Span("amount * 2", where="amount > 20"),
    }
    for name, aggregates in {"spark": merged_by_spark, "python": in_python}.items():
        totals = source.key_by("user").aggregate(f"totals_{name}", **aggregates)
        totals.as_log().sink(f"out_{name}", ls.ParquetSink(tmp_path / name))
    run_available(pipeline, finish_files=True)
    spark.read.schema(EVENTS_DDL).parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    sql = {
        "n": "count(1)",
        "spread": "round(var_samp(amount) FILTER (WHERE amount > 10), 6)",
        "who": "max(struct(amount, item)).item",
        "least": "min(CASE WHEN amount > 30 THEN struct(amount, item) END).item",
        "opened": "min(struct(ts, amount)).amount",
        "closed": "max(CASE WHEN amount > 10 THEN struct(ts, item) END).item",
        "items": "count(DISTINCT item)",
        "large": "count(DISTINCT item) FILTER (WHERE amount > 50)",
        "some": "slice(array_sort(collect_set(item) FILTER (WHERE amount > 80)), 1, 3)",
        "span": "2 * max(amount) FILTER (WHERE amount > 20) - 2 * min(amount) FILTER (WHERE amount > 20)",
    }
    for name, aggregates in {"spark": merged_by_spark, "python": in_python}.items():
        columns = ", ".join(f"{sql[column]} AS {column}" for column in aggregates)
        expected = spark.sql(f"SELECT user, {columns} FROM {ROWS} GROUP BY ALL").toArrow().to_pylist()
        found = [
            row | {"spread": row["spread"] and round(row["spread"], 6)}
            for row in newest_rows(tmp_path / name, "user")
        ]
        assert found == sorted(expected, key=str)


class Span(ls.Aggregate):
    """The difference between the greatest and the least value."""

    state = "low double, high double"
    output = "double"

    def create(self, values: pa.Array) -> pa.Table:
        return pa.table({"low": values, "high": values})

    def merge(self, states: pa.Table, groups: pa.Array) -> pa.Table:
        grouped = states.append_column("group", groups).group_by("group", use_threads=False)
        return grouped.aggregate([("low", "min"), ("high", "max")]).rename_columns(["group", "low", "high"])

    def result(self, states: pa.Table) -> pa.ChunkedArray:
        return pc.subtract(states["high"], states["low"])


def test_a_mean_over_a_maximum_that_still_rises_takes_back_what_it_counted(
    spark: Any, tmp_path: Path
) -> None:
    for number in range(3):
        write_input(tmp_path / "in", number, events(number, 200))
    pipeline, source = pipeline_over(spark, tmp_path)
    tops = (
        source.select("*", ITEM)
        .key_by("user", "item")
        .aggregate("tops", emit="changes", top=ls.max("amount"))
    )
    means = tops.key_by("user").aggregate("means", n=ls.count(), average=ls.mean("top"), best=ls.max("top"))
    plain = tops.key_by("user").aggregate("plain", n=ls.count(), total=ls.sum("top"))
    assert (means.kind.kind, means.kind.key) == (RowKind.CHANGES, ("user",))
    means.as_log().sink("means_out", ls.ParquetSink(tmp_path / "means"))
    plain.as_log().sink("plain_out", ls.ParquetSink(tmp_path / "plain"))
    run_available(pipeline, finish_files=True)
    spark.read.schema(EVENTS_DDL).parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    inner = f"(SELECT user, item, max(amount) AS top FROM {ROWS} GROUP BY ALL)"
    for name, sql in {
        "means": "count(1) AS n, avg(top) AS average, max(top) AS best",
        "plain": "count(1) AS n, sum(top) AS total",
    }.items():
        expected = spark.sql(f"SELECT user, {sql} FROM {inner} GROUP BY ALL").toArrow().to_pylist()
        assert left_by_changes(tmp_path / name) == sorted(expected, key=str)


def test_the_example_of_the_page_prints_what_the_page_says_again_and_again(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/operators/aggregate.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0].replace("/data/", f"{tmp_path}/")
    printed = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0]
    for _ in range(2):
        exec(program, {})
        assert capsys.readouterr().out == printed


def left_by_changes(folder: Path) -> list[dict[str, Any]]:
    """The rows that are there after all changes: each was inserted once more than it was taken back."""
    counts: dict[str, int] = {}
    rows: dict[str, dict[str, Any]] = {}
    for row in read_output(folder):
        sign = 1 if row.pop("_change") in ("insert", "update_postimage") else -1
        rows[str(row)] = row
        counts[str(row)] = counts.get(str(row), 0) + sign
    assert set(counts.values()) <= {0, 1}
    return [rows[text] for text in sorted(counts) if counts[text]]
