"""Lookups on Spark: in a stream, in updates, and in a static DataFrame."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import (
    EVENTS,
    START,
    events,
    read_output,
    read_stream,
    run_available,
    write_input,
)

import lakestate as ls
from lakestate.errors import InvalidInputError, LakestateError

NAMES = pa.schema([("who", pa.string()), ("name", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
NAMES_DDL = "who string, name string, ts timestamp"


def write_both(folder: Path) -> None:
    def at(second: int) -> Any:
        return START + timedelta(seconds=second)

    for number, (amounts, names) in enumerate(
        [
            ([("ada", 1.0), ("bob", 2.0), (None, 3.0)], [("ada", "Ada", 5), (None, "Nobody", 5)]),
            ([("ada", 4.0), ("bob", 5.0)], [("ada", "Old Ada", 4), ("bob", "Bob", 6)]),
        ]
    ):
        rows = [{"user": user, "amount": amount, "ts": at(number)} for user, amount in amounts]
        given = [{"who": who, "name": name, "ts": at(second)} for who, name, second in names]
        write_input(folder / "in", number, pa.Table.from_pylist(rows, schema=EVENTS))
        write_input(folder / "names", number, pa.Table.from_pylist(given, schema=NAMES))


def streams(spark: Any, folder: Path) -> tuple[ls.Pipeline, Any, Any]:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=2, cache_dir=folder / "cache")
    return (
        pipeline,
        pipeline.source(read_stream(spark, folder / "in"), name="events", event_time="ts"),
        pipeline.source(read_stream(spark, folder / "names", NAMES_DDL), name="names", event_time="ts"),
    )


def test_rows_get_the_newest_row_of_their_key_in_streams_and_tables(spark: Any, tmp_path: Path) -> None:
    write_both(tmp_path)
    pipeline, source, names = streams(spark, tmp_path)
    static = spark.createDataFrame([("ada", 1), ("eve", 2), (None, 3)], "person string, number int")
    counts = names.key_by("who").aggregate("counts", n=ls.count()).key_by("who")
    (
        source.key_by("user")
        .lookup("names", names.key_by("who"), columns=["name"])
        .key_by("user")
        .lookup("counted", counts)
        .key_by("user")
        .lookup("numbered", static, on="person")
        .select("user", "amount", "name", "n", "number")
        .sink("out", ls.ParquetSink(tmp_path / "out"))
    )
    run_available(pipeline, finish_files=True)
    found = [tuple(row.values()) for row in read_output(tmp_path / "out")]
    assert sorted(found, key=lambda row: row[1]) == [
        ("ada", 1.0, "Ada", 1, 1),
        ("bob", 2.0, None, None, None),
        (None, 3.0, None, None, None),
        ("ada", 4.0, "Ada", 2, 1),
        ("bob", 5.0, "Bob", 1, None),
    ]


def test_a_dataframe_with_a_key_twice_stops_the_job(spark: Any, tmp_path: Path) -> None:
    write_both(tmp_path)
    pipeline = ls.Pipeline("job", tmp_path / "checkpoints", parallelism=2, cache_dir=tmp_path / "cache")
    source = pipeline.source(read_stream(spark, tmp_path / "in"))
    twice = spark.createDataFrame([("ada", 1), ("ada", 2)], "user string, number int")
    source.key_by("user").lookup("numbered", twice).sink("out", ls.ParquetSink(tmp_path / "out"))
    query = pipeline.start(trigger={"availableNow": True})
    with pytest.raises(Exception, match="lookup numbered: the DataFrame has a key twice"):
        query.awaitTermination(120)
    query.stop()
    assert read_output(tmp_path / "out") == []


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built(spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    write_input(tmp_path / "names", 0, NAMES.empty_table())
    _, source, names = streams(spark, tmp_path)
    rows, right = source.key_by("user"), names.key_by("who")
    static = spark.createDataFrame([("ada", 1)], "user string, number int")
    stream = read_stream(spark, tmp_path / "names", NAMES_DDL)
    counts = names.key_by("who", "name").aggregate("counts", n=ls.count()).key_by("who")
    for build, message in {
        lambda: rows.lookup("l", right): "the same name: lookup l; found ts; pass prefix=",
        lambda: rows.lookup("l", right, columns=["nmae"]): "columns of lookup l.*nmae",
        lambda: rows.lookup("l", right, columns="name"): "columns takes a list of names",
        lambda: rows.lookup("l", right, columns=["who"]): "names a column that is there already",
        lambda: rows.lookup("l", right, columns=["name"], how="full"): "expected 'left', 'inner'",
        lambda: rows.lookup("l", right, columns=["name"], on="who"): "on is for a DataFrame",
        lambda: rows.lookup("l", names, columns=["name"]): "the right side of lookup l is of another type",
        lambda: source.key_by("amount").lookup("l", right, columns=["name"]): "different types: lookup l",
        lambda: rows.lookup(
            "l", counts, columns=["n"]
        ): "by their own key alone: lookup l; found updates by who",
        lambda: rows.lookup("l", static, on="usr"): "on of lookup l.*usr",
        lambda: rows.lookup("l", static, on=["user", "number"]): "for each column of the key",
        lambda: rows.lookup("l", static, keep="1 day"): "keep is for streams",
        lambda: rows.lookup("l", stream, on="who"): "found a streaming DataFrame; write pipeline.source",
        lambda: source.key_by("user").aggregate("a", n=ls.count()).key_by("user").lookup("l", static): (
            "the left side of lookup l cannot take rows that change"
        ),
    }.items():
        with pytest.raises(LakestateError, match=message) as caught:
            build()
        assert isinstance(caught.value, InvalidInputError) or "usr" in message or "nmae" in message
