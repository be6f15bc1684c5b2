"""How sinks show themselves: where they write, and what differs from the default; no secret."""

from __future__ import annotations

import pytest

import lakestate as ls
from lakestate.sinks import EventTime

SECRET = {"secret_access_key": "s3cr3t", "region": "eu"}


@pytest.mark.parametrize(
    ("sink", "shown"),
    [
        (ls.ParquetSink("s3://bucket/out"), "ParquetSink('s3://bucket/out')"),
        (
            ls.ParquetSink("s3://bucket/out", options=SECRET, compression="snappy"),
            "ParquetSink('s3://bucket/out', options=<region, secret_access_key>, compression='snappy')",
        ),
        (
            ls.JsonLinesSink("/data/out", partition_by=["town", EventTime("%Y")]),
            "JsonLinesSink('file:///data/out', partition_by=['town', EventTime(pattern='%Y')])",
        ),
        (
            ls.FileSink("/data/out", format="json", shuffle_by_partition=True),
            (
                "FileSink('file:///data/out', format=JsonLinesFormat(compression='none'), "
                "shuffle_by_partition=True)"
            ),
        ),
        (
            ls.IcebergSink(
                "shop.a",
                catalog={"type": "rest", "uri": "https://catalog", "token": "s3cr3t"},
                properties={"owner": "s3cr3t"},
            ),
            (
                "IcebergSink('shop.a', catalog=IcebergCatalog('lakestate', properties=token, type, uri), "
                "properties=<owner>)"
            ),
        ),
        (
            ls.DeltaSink("/data/orders", partition_by=["day"], options={"secret_access_key": "s3cr3t"}),
            "DeltaSink('file:///data/orders', options=<secret_access_key>, partition_by=('day',))",
        ),
    ],
)
def test_a_sink_shows_what_differs_from_the_default(sink: object, shown: str) -> None:
    assert repr(sink) == shown
    assert "s3cr3t" not in repr(sink)
