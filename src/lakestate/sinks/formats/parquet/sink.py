"""`ParquetSink`: exactly-once Parquet files that stay open across epochs."""

from __future__ import annotations

import hashlib
from dataclasses import KW_ONLY, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.config import size_bytes
from lakestate.errors import InvalidInputError
from lakestate.sinks.files.destination import BatchBufferingWriter
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.writer_state import WriterState
from lakestate.sinks.formats.parquet.segment import ParquetSettings
from lakestate.sinks.formats.parquet.writer import (
    KEPT_ROW_BYTES_DEFAULT,
    ROW_GROUP_BYTES_DEFAULT,
    ParquetBatchBufferingWriter,
)


@dataclass(frozen=True)
class ParquetSink(FileSink):
    """Writes Parquet files below a URL, each visible exactly once and never before it is whole.

    `partition_by` takes column names, which become directories as Hive names them, and
    `EventTime` patterns. `row_group_bytes` is measured as the rows lie in memory.

    >>> sink = ParquetSink("file:///data/out", partition_by=["country"], compression="snappy")
    >>> sink.check(pa.schema([("country", pa.string())]))
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: no column is left to write: file:///data/out; ...
    """

    _: KW_ONLY
    compression: str = "zstd"
    compression_level: int | None = None
    row_group_bytes: int | str = ROW_GROUP_BYTES_DEFAULT
    kept_row_bytes: int | str = KEPT_ROW_BYTES_DEFAULT
    """The most rows of an open file that a checkpoint keeps as they are, instead of a row group."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if size_bytes(self.row_group_bytes) < 1:
            raise InvalidInputError("a row group cannot have no bytes", found=self.row_group_bytes)
        size_bytes(self.kept_row_bytes)
        assert self.settings

    @property
    def extension(self) -> str:
        """What file names end with."""
        return "parquet"

    @property
    def settings(self) -> ParquetSettings:
        """How rows are encoded."""
        return ParquetSettings(self.compression, self.compression_level)

    def format_of(self, schema: pa.Schema) -> str:
        """A digest of the schema: files with the same one can go on."""
        digest = hashlib.blake2b(schema.serialize().to_pybytes(), digest_size=8).hexdigest()
        return f"parquet-{digest}"

    def check_rows(self, schema: pa.Schema) -> None:
        """Refuse columns that Parquet cannot hold."""
        for column in schema:
            try:
                pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([column])).close()
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as cause:
                raise InvalidInputError(
                    "a column cannot be written to Parquet",
                    object_name=column.name,
                    found=f"{column.type}: {cause}",
                    action="cast or drop it before the sink",
                ) from cause

    def new_file(self, schema: pa.Schema) -> BatchBufferingWriter:
        """A writer of a new file."""
        return ParquetBatchBufferingWriter(
            schema,
            self.settings,
            row_group_bytes=self.row_group_bytes,
            kept_row_bytes=self._kept_row_bytes,
        )

    def resume_file(self, schema: pa.Schema, state: WriterState) -> BatchBufferingWriter:
        """A writer of a file that goes on."""
        return ParquetBatchBufferingWriter.resume(
            schema,
            state,
            self.settings,
            row_group_bytes=self.row_group_bytes,
            kept_row_bytes=self._kept_row_bytes,
        )

    @property
    def _kept_row_bytes(self) -> int:
        # Of a small file less is kept, or its size would be a guess until it ends.
        return min(size_bytes(self.kept_row_bytes), self.roll.bytes_max // 4)
