from __future__ import annotations

import re

import pyarrow as pa
import pytest
from tests.support.repository import ROOT

from lakestate.sinks import ParquetSink
from lakestate.sinks.formats.json_lines.format import JsonLinesFormat
from lakestate.sinks.formats.parquet.format import ParquetFormat

PAGE = ROOT / "docs" / "sinks.md"


def test_the_sink_that_the_page_shows_can_be_made_and_checked() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(code, names)
    sink = names["out"]
    assert isinstance(sink, ParquetSink)
    schema = pa.schema([("country", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    sink.check(schema, "ts")
    assert sink.file_schema(schema, "ts").names == ["ts", "n"]


def test_the_page_names_every_option_of_the_data_source() -> None:
    pytest.importorskip("pyspark")
    from lakestate.spark.data_source.options import known_options

    section = PAGE.read_text().split("## Directly from Spark\n")[1].split("\n## ")[0]
    named = {name for row in re.findall(r"^\| `.*$", section, re.MULTILINE) for name in _first_cell(row)}
    assert named - {"store.…"} == {*known_options(ParquetFormat), *known_options(JsonLinesFormat)}


def _first_cell(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row.split("|")[1])
