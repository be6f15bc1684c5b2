"""A local file of its own, as a sink opens it: begun in one process, continued in another."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakestate.sinks.files.destination import CurrentFileRecovery, LocalResumePoint
from lakestate.sinks.files.local.growing_file import GrowingFile
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.formats.parquet.local_writer import ParquetLocalWriter
from lakestate.sinks.formats.parquet.segment import ParquetEncoding
from lakestate.sinks.formats.parquet.writer import KEPT_ROW_BYTES_DEFAULT


def begin_file(
    root: Path,
    hidden: str,
    final: str,
    schema: pa.Schema,
    settings: ParquetEncoding | None = None,
    *,
    kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT,
) -> ParquetLocalWriter:
    output = LocalOutput(root)
    file = GrowingFile(output, final, output.create(hidden))
    return ParquetLocalWriter(file, schema, settings, kept_row_bytes=kept_row_bytes)


def continue_file(
    root: Path,
    final: str,
    record: CurrentFileRecovery,
    schema: pa.Schema,
    settings: ParquetEncoding | None = None,
    *,
    attempt: str,
    kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT,
) -> ParquetLocalWriter:
    output, place = LocalOutput(root), record.resume_point
    assert isinstance(place, LocalResumePoint)
    found = output.reopen(place.temporary, place.position, place.crc32, f"copy-{attempt}")
    file = GrowingFile(output, final, found)
    return ParquetLocalWriter(file, schema, settings, state=record.state, kept_row_bytes=kept_row_bytes)
