"""What can be read of an output without Lakestate: visible files, and copies of open ones."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.snapshots import STORE_FOLDER


def snapshot_contents(sink: FileSink) -> dict[str, bytes]:
    """The copies of open files, by path."""
    output = sink.output
    if isinstance(output, LocalOutput):
        return {path: (output.root / path).read_bytes() for path in output.snapshots.paths()}
    return {info.path: output.get(info.path).data for info in output.list(f"{STORE_FOLDER}/")}


def visible_contents(sink: FileSink) -> dict[str, bytes]:
    """The visible files, by path."""
    output = sink.output
    if isinstance(output, LocalOutput):
        files = [file for file in output.root.rglob("*.*") if file.is_file()]
        paths = {file: file.relative_to(output.root) for file in files}
        return {
            str(path): file.read_bytes() for file, path in paths.items() if not path.parts[0].startswith(".")
        }
    return {info.path: output.get(info.path).data for info in output.list() if info.path[0] != "_"}


def rows_of(content: bytes) -> list[int]:
    """The numbers of the rows in a file of any format of the tests."""
    if content.startswith(b"PAR1"):
        return list(pq.read_table(pa.BufferReader(content))["row"].to_pylist())
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    return [json.loads(line)["row"] for line in text.splitlines()]


def readable_rows(sink: FileSink) -> list[int]:
    """Every row that can be read by path, as often as it can be read."""
    contents = [*visible_contents(sink).values(), *snapshot_contents(sink).values()]
    return sorted(row for content in contents for row in rows_of(content))
