from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from lakestate.sinks import ParquetSink

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"


def test_the_sink_that_the_page_shows_can_be_made_and_checked() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    sink = names["out"]
    assert isinstance(sink, ParquetSink)
    schema = pa.schema([("country", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    sink.check(schema, "ts")
    assert sink.file_schema(schema, "ts").names == ["ts", "n"]
