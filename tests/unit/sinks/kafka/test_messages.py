"""Rows as messages: keys, values, headers, partitions, tombstones, and what is refused."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.formats.json_lines.writer import JsonLinesWriter
from lakestate.sinks.kafka.json_values import json_objects
from lakestate.sinks.kafka.messages import MessageLayout

SCHEMA = pa.schema([("who", pa.string()), ("n", pa.int64()), ("raw", pa.binary()), ("p", pa.int32())])


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def messages(layout: MessageLayout, rows: pa.RecordBatch, **limits: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = layout.messages(rows, **{"bytes_max": 1000} | limits).to_pylist()
    return found


def test_a_string_and_a_binary_column_are_taken_as_they_are_and_null_stays_null() -> None:
    rows = batch({"who": "é", "raw": b"\x00\xff"}, {"who": None, "raw": None}, {"who": "", "raw": b""})
    assert messages(MessageLayout("who", "raw"), rows) == [
        {"key": "é".encode(), "value": b"\x00\xff"},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
    ]


def test_several_columns_become_a_json_object_and_without_a_value_all_do() -> None:
    rows = batch({"who": "a", "n": 1})
    assert messages(MessageLayout(["who", "n"], ["n"]), rows) == [
        {"key": b'{"who":"a","n":1}', "value": b'{"n":1}'}
    ]
    assert messages(MessageLayout(), rows) == [{"value": b'{"who":"a","n":1,"raw":null,"p":null}'}]


def test_headers_are_named_columns_or_a_column_as_spark_has_it() -> None:
    rows = batch({"who": "a", "raw": b"x"}, {"who": "b", "raw": None})
    layout = MessageLayout(value="who", headers={"from": "who", "raw": "raw"})
    assert [each["headers"] for each in messages(layout, rows)] == [
        [{"key": "from", "value": b"a"}, {"key": "raw", "value": b"x"}],
        [{"key": "from", "value": b"b"}, {"key": "raw", "value": None}],
    ]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    given = pa.array([[{"key": "h", "value": b"1"}], None], kind)
    spark_rows = pa.record_batch({"v": pa.array(["x", "y"]), "headers": given})
    layout = MessageLayout(value="v", headers="headers")
    layout.check(spark_rows.schema, "topic t")
    assert [each["headers"] for each in messages(layout, spark_rows)] == [[{"key": "h", "value": b"1"}], None]


def test_a_partition_is_named_by_a_column_and_null_leaves_it_to_the_key() -> None:
    rows = batch({"who": "a", "p": 1}, {"who": "b", "p": None})
    found = messages(MessageLayout(value="who", partition="p"), rows, partitions=2)
    assert [each["partition"] for each in found] == [1, -1]


@pytest.mark.parametrize(
    ("partition", "advice"), [(-1, "null leaves the choice to Kafka"), (2, "if partitions were added")]
)
def test_a_partition_that_the_topic_does_not_have_is_refused(partition: int, advice: str) -> None:
    with pytest.raises(InvalidInputError, match=f"column p; found {partition}; expected 0 to 1; .*{advice}"):
        messages(MessageLayout(value="who", partition="p"), batch({"who": "a", "p": partition}), partitions=2)


def test_a_message_that_is_too_large_is_named_with_its_row() -> None:
    rows = batch({"who": "a", "raw": b"x"}, {"who": "big", "raw": b"x" * 100})
    layout = MessageLayout("who", "raw", headers={"h": "who"})
    assert len(messages(layout, rows, bytes_max=107)) == 2
    with pytest.raises(
        InvalidInputError, match=r"row 1 of a batch, key b'big'; found 107 bytes; expected at most 106"
    ):
        messages(layout, rows, bytes_max=106)


def test_of_changes_deletes_become_tombstones_and_rows_before_an_update_are_left_out() -> None:
    rows = pa.record_batch(
        {
            "who": ["a", "b", "b", "c"],
            "n": [1, 2, 3, 4],
            "_change": ["insert", "update_preimage", "update_postimage", "delete"],
        }
    )
    layout = MessageLayout("who", stream=StreamKind(RowKind.CHANGES, ("who",)))
    layout.check(rows.schema, "topic t")
    assert messages(layout, rows) == [
        {"key": b"a", "value": b'{"who":"a","n":1}'},
        {"key": b"b", "value": b'{"who":"b","n":3}'},
        {"key": b"c", "value": None},
    ]


def test_updates_need_the_key_of_the_stream() -> None:
    updates = StreamKind(RowKind.UPSERT, ("who", "n"))
    MessageLayout(["n", "who"], stream=updates).check(SCHEMA, "topic t")
    for key in (None, "who", ["who", "n", "p"]):
        with pytest.raises(InvalidInputError, match="expected the columns who, n; call as_log"):
            MessageLayout(key, stream=updates).check(SCHEMA, "topic t")


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (MessageLayout("nobody"), "not in the stream: topic t; found who, n, raw, p; expected nobody"),
        (MessageLayout("n"), r"the key of a message: topic t, column n; found int64.*key=\['n'\] for a JSON"),
        (MessageLayout(value="n"), "the value of a message: topic t, column n; found int64"),
        (MessageLayout(headers={"h": "n"}), "the header of a message: topic t, column n; found int64"),
        (MessageLayout(headers="who"), "the headers of a message: topic t, column who; found string"),
        (MessageLayout(partition="who"), "the partition of a message: topic t, column who; found string"),
    ],
)
def test_missing_columns_and_wrong_types_are_named(layout: MessageLayout, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        layout.check(SCHEMA, "topic t")


def test_json_values_are_those_of_json_lines() -> None:
    utc = datetime.UTC
    rows = pa.record_batch(
        {
            'a "name"': pa.array([1, None, -(2**63)]),
            "text": ['q"\\/', "\u2028\n\x00\x1f", None],
            "flag": [True, None, False],
            "number": [0.1, float("nan"), float("-inf")],
            "small": pa.array([1.5, -2.25, None], pa.float32()),
            "time": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 6, utc)] * 3, pa.timestamp("us", "UTC")),
            "day": pa.array([datetime.date(1, 1, 1)] * 3),
            "amount": pa.array([Decimal("1.20"), None, Decimal("-0.01")]),
            "raw": [b"\x00", b"", None],
            "list": pa.array([[1, None], [], None]),
            "struct": pa.array([{"x": "é"}, {"x": None}, None]),
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    found = [json.loads(text) for text in json_objects(rows, rows.schema.names).to_pylist()]
    expected = [json.loads(line) for line in JsonLinesWriter(rows.schema).encode_rows(rows).splitlines()]
    assert found == expected
