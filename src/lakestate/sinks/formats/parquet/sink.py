"""`ParquetSink`: exactly-once Parquet files that stay open across epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.parquet.format import ParquetFormat, ParquetSettings


@dataclass(frozen=True, repr=False)
class ParquetSink(ParquetSettings, FileSink):
    """Writes Parquet files below a URL, each visible exactly once and never before it is whole.

    `partition_by` takes column names, which become directories as Hive names them, and
    `EventTime` patterns. `row_group_bytes` is the size of the rows in memory.

    >>> import pyarrow as pa
    >>> sink = ParquetSink("file:///data/out", partition_by=["country"], compression="snappy")
    >>> sink.check(pa.schema([("country", pa.string())]))
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: no column is left to write: file:///data/out; ...
    """

    format: FileFormat | str = field(init=False, repr=False, default=ParquetFormat.name)

    # Not that of the settings, which come first.
    __repr__ = FileSink.__repr__

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", ParquetFormat.of(self))
        super().__post_init__()
