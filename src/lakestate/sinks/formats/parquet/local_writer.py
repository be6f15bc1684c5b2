"""`ParquetLocalWriter`: the Parquet files of a sink that writes to a local directory."""

from __future__ import annotations

import pyarrow as pa

from lakestate.sinks.files.local.growing_file import GrowingFile
from lakestate.sinks.files.local.writer import LocalWriter
from lakestate.sinks.formats.parquet.segment import ParquetEncoding
from lakestate.sinks.formats.parquet.writer import (
    KEPT_ROW_BYTES_DEFAULT,
    ROW_GROUP_BYTES_DEFAULT,
    ParquetBatchBufferingWriter,
)
from lakestate.sinks.formats.writer_state import WriterState


class ParquetLocalWriter(LocalWriter):
    """One Parquet file in a local directory, written over many epochs, by as many processes.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from lakestate.sinks.files.local.output import LocalOutput
    >>> output = LocalOutput(Path(tempfile.mkdtemp()))
    >>> rows = pa.record_batch({"n": [1, 2]})
    >>> file = GrowingFile(output, "final.parquet", output.create("hidden"))
    >>> writer = ParquetLocalWriter(file, rows.schema)
    >>> length = writer.write_batch(rows)
    >>> record = writer.checkpoint()
    >>> writer.release()

    Another process continues it:

    >>> place = record.resume_point
    >>> found = output.reopen(place.temporary, place.position, place.crc32, "copy")
    >>> file = GrowingFile(output, "final.parquet", found)
    >>> writer = ParquetLocalWriter(file, rows.schema, state=record.state)
    >>> finished = writer.close()
    >>> output.publish(finished.content.temporary, finished.path, finished.size_bytes)
    >>> [file.name for file in output.root.iterdir() if file.is_file()], finished.statistics.row_count
    (['final.parquet'], 2)
    """

    suffix = ParquetBatchBufferingWriter.suffix

    def __init__(
        self,
        file: GrowingFile,
        schema: pa.Schema,
        settings: ParquetEncoding | None = None,
        *,
        state: WriterState | None = None,
        row_group_bytes: int | str = ROW_GROUP_BYTES_DEFAULT,
        kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT,
    ) -> None:
        sizes = {"row_group_bytes": row_group_bytes, "kept_row_bytes": kept_row_bytes}
        writer = (
            ParquetBatchBufferingWriter(schema, settings, **sizes)
            if state is None
            else ParquetBatchBufferingWriter.resume(schema, state, settings, **sizes)
        )
        super().__init__(file, writer)
