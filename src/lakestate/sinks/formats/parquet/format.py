"""Parquet as a file format, and its settings, which every sink that writes Parquet takes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.config import size_bytes
from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.format import BatchBufferingWriter, FileFormat
from lakestate.sinks.formats.parquet.segment import ParquetEncoding
from lakestate.sinks.formats.parquet.writer import (
    KEPT_ROW_BYTES_DEFAULT,
    ROW_GROUP_BYTES_DEFAULT,
    ParquetBatchBufferingWriter,
)
from lakestate.sinks.formats.writer_state import WriterState
from lakestate.sinks.text_options import option, parse_number, parse_size

if TYPE_CHECKING:
    from lakestate.sinks.files.local.growing_file import GrowingFile
    from lakestate.sinks.formats.parquet.local_writer import ParquetLocalWriter


@dataclass(frozen=True, kw_only=True)
class ParquetSettings:
    """What can be chosen about Parquet files."""

    compression: str = field(default="zstd", metadata=option("compression", str.lower))
    compression_level: int | None = field(default=None, metadata=option("compressionLevel", parse_number))
    row_group_bytes: int | str = field(
        default=ROW_GROUP_BYTES_DEFAULT, metadata=option("rowGroupSize", parse_size)
    )
    """The size of the rows in memory."""
    kept_row_bytes: int | str = field(
        default=KEPT_ROW_BYTES_DEFAULT, metadata=option("keptRowSize", parse_size)
    )
    """The most rows of an open file that a checkpoint keeps as they are, instead of a row group."""


@dataclass(frozen=True, kw_only=True)
class ParquetFormat(ParquetSettings, FileFormat):
    """Parquet files, written one row group at a time.

    >>> ParquetFormat(compression="snappy").extension
    'parquet'
    """

    name: ClassVar[str] = "parquet"

    def __post_init__(self) -> None:
        if size_bytes(self.row_group_bytes) < 1:
            raise InvalidInputError("a row group cannot have no bytes", found=self.row_group_bytes)
        size_bytes(self.kept_row_bytes)
        ParquetEncoding(self.compression, self.compression_level)

    @classmethod
    def of(cls, settings: ParquetSettings) -> ParquetFormat:
        """The format that a sink's settings describe."""
        return cls(**{each.name: getattr(settings, each.name) for each in fields(ParquetSettings)})

    @property
    def extension(self) -> str:
        """What file names end with."""
        return "parquet"

    @property
    def kind(self) -> str:
        """Codec, level and sizes can change in the middle of a file."""
        return self.extension

    @cached_property
    def encoding(self) -> ParquetEncoding:
        """How rows are encoded."""
        return ParquetEncoding(self.compression, self.compression_level)

    def check(self, schema: pa.Schema) -> None:
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

    def for_file_size(self, bytes_max: int) -> ParquetFormat:
        """Of a small file fewer rows are kept, or its size would be a guess until it ends."""
        return replace(self, kept_row_bytes=min(size_bytes(self.kept_row_bytes), bytes_max // 4))

    def open_writer(self, schema: pa.Schema, state: WriterState | None) -> BatchBufferingWriter:
        """A writer of a new file, or of one that continues."""
        if state is None:
            return ParquetBatchBufferingWriter(schema, self.encoding, **self._sizes)
        return ParquetBatchBufferingWriter.resume(schema, state, self.encoding, **self._sizes)

    def open_local_writer(
        self, file: GrowingFile, schema: pa.Schema, state: WriterState | None
    ) -> ParquetLocalWriter:
        """A writer of a Parquet file in a local directory."""
        # Files import formats.
        from lakestate.sinks.formats.parquet.local_writer import ParquetLocalWriter

        return ParquetLocalWriter(file, schema, self.encoding, state=state, **self._sizes)

    @property
    def _sizes(self) -> dict[str, int | str]:
        return {"row_group_bytes": self.row_group_bytes, "kept_row_bytes": self.kept_row_bytes}
