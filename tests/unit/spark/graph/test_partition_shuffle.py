"""Which rows a sink asks to have together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampNTZType, TimestampType

import lakestate as ls
from lakestate.sinks import EventTime
from lakestate.sinks.partitioning.partitioner import Partitioning
from lakestate.spark.graph.nodes import Graph, ShuffleNode, SourceNode
from lakestate.spark.graph.partition_shuffle import add_partition_shuffle, micros_sql, shuffle_expressions

SCHEMA = StructType(
    [
        StructField("n", LongType()),
        StructField("country", StringType()),
        StructField("ts", TimestampType()),
        StructField("local", TimestampNTZType()),
    ]
)


def source(event_time: str | None) -> Any:
    return SourceNode("events", SimpleNamespace(schema=SCHEMA), event_time)


@pytest.mark.parametrize(
    ("by", "event_time", "expected"),
    [
        (("country", "n"), None, ("`country`", "`n`")),
        ((EventTime("%Y/%m/%d/%H"),), "ts", ("floor(unix_micros(`ts`) / 3600000000)",)),
        (
            ("country", EventTime("day=%Y-%m-%d")),
            "local",
            (
                "`country`",
                f"floor({micros_sql('`local`', 'timestamp_ntz')} / 86400000000)",
            ),
        ),
    ],
)
def test_rows_of_one_path_have_one_value(by: tuple[Any, ...], event_time: str | None, expected: Any) -> None:
    assert shuffle_expressions(Partitioning(by), SCHEMA, event_time) == expected


def test_names_of_columns_are_quoted() -> None:
    assert shuffle_expressions(Partitioning(("a.b", "c`d")), SCHEMA, None) == ("`a.b`", "`c``d`")


def test_an_event_time_that_is_not_a_column_is_refused() -> None:
    with pytest.raises(ls.InvalidInputError, match=r"not have: tss; .*did you mean ts\?"):
        shuffle_expressions(Partitioning((EventTime("%Y"),)), SCHEMA, "tss")


def test_a_sink_that_does_not_ask_takes_rows_as_they_come() -> None:
    graph, node = Graph(), source(None)
    assert (
        add_partition_shuffle(ls.ParquetSink("memory://out", partition_by=["country"]), graph, node) is node
    )
    assert graph.nodes == []


def test_a_sink_that_asks_gets_a_shuffle_by_its_partitions() -> None:
    graph, node = Graph(), source("ts")
    sink = ls.JsonLinesSink(
        "memory://out", partition_by=["country", EventTime("%Y-%m")], shuffle_by_partition=True
    )
    found = add_partition_shuffle(sink, graph, node)
    assert isinstance(found, ShuffleNode)
    assert graph.nodes == [found]
    assert found.parent is node
    assert found.expressions == shuffle_expressions(sink.partitioning, SCHEMA, "ts")


def test_a_shuffle_by_no_partition_is_refused() -> None:
    with pytest.raises(ls.InvalidInputError, match="no partitions"):
        add_partition_shuffle(
            ls.ParquetSink("memory://out", shuffle_by_partition=True), Graph(), source(None)
        )


def test_a_shuffle_by_event_time_needs_one() -> None:
    sink = ls.ParquetSink("memory://out", partition_by=[EventTime("%Y")], shuffle_by_partition=True)
    with pytest.raises(ls.InvalidInputError, match="the stream has none"):
        add_partition_shuffle(sink, Graph(), source(None))
