"""Joins on Spark: names and types of columns, event time, and exact results against Spark SQL."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import START, read_output, read_stream, run_available, write_input

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.operators.windows.specs import Session

TIME = pa.timestamp("us", tz="UTC")
ORDERS = pa.schema([("id", pa.int64()), ("item", pa.string()), ("ts", TIME)])
ORDERS_DDL = "id bigint, item string, ts timestamp"
PAYMENTS = pa.schema([("id", pa.int64()), ("order_id", pa.int64()), ("ts", TIME)])
PAYMENTS_DDL = "id bigint, order_id bigint, ts timestamp"


def write_both(folder: Path, files: int = 3, rows: int = 200) -> None:
    for number in range(files):
        choose = random.Random(number)
        orders = [
            {
                "id": choose.choice([None, *range(60)]),
                "item": f"item-{number}-{row}",
                "ts": moment(choose, number),
            }
            for row in range(rows)
        ]
        payments = [
            {
                "id": number * rows + row,
                "order_id": choose.choice([None, *range(60)]),
                "ts": moment(choose, number),
            }
            for row in range(rows)
        ]
        write_input(folder / "orders", number, pa.Table.from_pylist(orders, schema=ORDERS))
        write_input(folder / "payments", number, pa.Table.from_pylist(payments, schema=PAYMENTS))


def moment(choose: random.Random, number: int) -> Any:
    return START + timedelta(seconds=number * 100 + choose.randrange(100))


def streams(spark: Any, folder: Path) -> tuple[ls.Pipeline, Any, Any]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=2, cache_dir=folder / "cache")
    orders = read_stream(spark, folder / "orders", ORDERS_DDL)
    payments = read_stream(spark, folder / "payments", PAYMENTS_DDL)
    return (
        pipeline,
        pipeline.source(orders, name="orders", event_time="ts", delay="100 seconds"),
        pipeline.source(payments, name="payments", event_time="ts", delay="100 seconds"),
    )


def test_a_join_yields_what_spark_sql_says_of_all_rows(spark: Any, tmp_path: Path) -> None:
    write_both(tmp_path)
    pipeline, orders, payments = streams(spark, tmp_path)
    orders, payments = orders.key_by("id"), payments.key_by("order_id")
    within, prefix = ("-5 seconds", "20 seconds"), ("", "paid_")
    joined = orders.join("full", payments, how="full", within=within, prefix=prefix)
    joined.sink("out_full", ls.ParquetSink(tmp_path / "full"))
    orders.join("anti", payments, how="anti", within=within).sink(
        "out_anti", ls.ParquetSink(tmp_path / "anti")
    )
    run_available(pipeline, drain=True)
    for name, ddl in (("orders", ORDERS_DDL), ("payments", PAYMENTS_DDL)):
        spark.read.schema(ddl).parquet(str(tmp_path / name)).createOrReplaceTempView(name)
    for how in ("full", "anti"):
        right = "" if how == "anti" else ", p.id AS paid_id, p.ts AS paid_ts"
        key = "coalesce(o.id, p.order_id)" if how == "full" else "o.id"
        expected = spark.sql(
            f"SELECT {key} AS id, o.item, o.ts{right} FROM orders o {how} JOIN payments p "
            "ON o.id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL 5 SECONDS AND o.ts + INTERVAL 20 SECONDS"
        ).toArrow()
        assert sorted(read_output(tmp_path / how), key=str) == sorted(expected.to_pylist(), key=str)


def test_a_join_by_window_yields_what_spark_sql_says_of_all_rows(spark: Any, tmp_path: Path) -> None:
    write_both(tmp_path, files=2, rows=150)
    pipeline, orders, payments = streams(spark, tmp_path)
    window = ls.Hopping("20 seconds", every="10 seconds")
    right = payments.key_by("order_id").window(window)
    joined = orders.key_by("id").window(window).join("both", right, how="left", prefix=("", "paid_"))
    joined.sink("out", ls.ParquetSink(tmp_path / "out"))
    run_available(pipeline, drain=True)
    for name, ddl in (("orders", ORDERS_DDL), ("payments", PAYMENTS_DDL)):
        rows = spark.read.schema(ddl).parquet(str(tmp_path / name))
        rows.selectExpr("*", "window(ts, '20 seconds', '10 seconds') AS w").createOrReplaceTempView(name)
    expected = spark.sql(
        "SELECT o.id, o.item, o.ts, o.w.start AS window_start, o.w.end AS window_end, p.id AS paid_id, "
        "p.ts AS paid_ts FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND o.w = p.w"
    ).toArrow()
    assert sorted(read_output(tmp_path / "out"), key=str) == sorted(expected.to_pylist(), key=str)


def test_windows_that_cannot_be_joined_are_refused_when_the_pipeline_is_built(
    spark: Any, tmp_path: Path
) -> None:
    write_both(tmp_path, files=1, rows=1)
    _, orders, payments = streams(spark, tmp_path)
    left, right = orders.key_by("id"), payments.key_by("order_id")
    ten, names = ls.Tumbling("10 seconds"), {"prefix": ("", "paid_")}
    for build, message in {
        lambda: left.window(ten).join("j", right, **names): "the right side of join j is of another type",
        lambda: left.window(ten).join("j", right.window(ls.Tumbling("5 seconds")), **names): (
            "both sides of a join need the same window"
        ),
        lambda: left.window(ten, allowed_lateness="1 s").join("j", right.window(ten), **names): (
            "give both the same window and allowed_lateness"
        ),
        lambda: left.window(Session("1 s")).join("j", right.window(Session("1 s")), **names): (
            "joined by tumbling or hopping windows of event time"
        ),
        lambda: (
            orders.select("*", "ts AS window_start")
            .key_by("id")
            .window(ten)
            .join("j", right.window(ten), **names)
        ): "a window has a column of this name itself",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()


def test_the_time_of_a_result_is_when_it_is_known(spark: Any, tmp_path: Path) -> None:
    write_both(tmp_path, files=1, rows=1)
    _, orders, payments = streams(spark, tmp_path)
    orders, payments = orders.key_by("id"), payments.key_by("order_id")
    times = {
        how: joined._building.time_sql(joined._node)
        for how in ("inner", "left", "semi")
        for joined in [orders.join(how, payments, how=how, within=("0 s", "1 hour"), prefix=("", "paid_"))]
    }
    assert times == {
        "inner": "greatest(`ts`, `paid_ts`)",
        "left": "CASE WHEN `paid_ts` IS NULL THEN (`ts`) + INTERVAL '3600.000000' SECOND "
        "ELSE greatest(`ts`, `paid_ts`) END",
        "semi": "(`ts`) + INTERVAL '3600.000000' SECOND",
    }
    row = spark.sql("SELECT timestamp'2026-01-01 00:00:00Z' AS ts, CAST(NULL AS TIMESTAMP) AS paid_ts")
    (found,) = row.selectExpr(f"{times['left']} AS time").collect()
    assert found["time"].timestamp() == (START + timedelta(hours=1)).timestamp()


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_both(tmp_path, files=1, rows=1)
    _, source, payments = streams(spark, tmp_path)
    _, _, others = streams(spark, tmp_path)
    orders, right = source.key_by("id"), payments.key_by("order_id")
    hour = {"within": ("0 seconds", "1 hour"), "prefix": ("", "paid_")}
    changing = payments.key_by("order_id").aggregate("sums", n=ls.count()).key_by("order_id")
    for build, message in {
        lambda: orders.join("j", right): 'keep all rows: join j; pass within=.*keep="for ever"',
        lambda: orders.join("j", right, how="left", keep="for ever", prefix=("", "p_")): (
            "can always find a match, so none comes out"
        ),
        lambda: orders.join("j", right, how="outer", **hour): "unknown way to join",
        lambda: orders.join(
            "j", right, within=("0 s", "1 s")
        ): "the same name: join j; found id, ts; pass prefix=",
        lambda: orders.join("j", right, within=("0 s", "1 s"), prefix=("", "")): "columns of the same name",
        lambda: orders.join(
            "j", right, within=("0 s", "1 s"), prefix="p_"
        ): "prefix takes one text for each side",
        lambda: orders.join("j", payments, **hour): "the right side of join j is of another type",
        lambda: orders.join("j", others.key_by("order_id"), **hour): "the streams are of two pipelines",
        lambda: source.key_by("item").join("j", right, **hour): (
            "different types: join j; found item string and order_id bigint; cast one"
        ),
        lambda: orders.join("j", changing, keep="for ever"): (
            "the right side of join j cannot take rows that change; found updates by order_id"
        ),
        lambda: source.select("id", "item").key_by("id").join("j", right, **hour): "join j needs event time",
        lambda: source.select("*", "item AS _epoch").key_by("id").join("j", right, how="left", **hour): (
            "needs this name for a column of its state: left rows; found _epoch"
        ),
        lambda: source.key_by("ts").join("j", payments.key_by("ts"), how="left", **hour): (
            "the event time is a column of the key"
        ),
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            build()
