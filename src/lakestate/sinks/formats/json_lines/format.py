"""JSON lines as a file format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.format import BatchBufferingWriter, FileFormat
from lakestate.sinks.formats.json_lines.writer import JsonCompression, JsonLinesWriter
from lakestate.sinks.formats.writer_state import WriterState
from lakestate.sinks.text_options import option


@dataclass(frozen=True, kw_only=True)
class JsonLinesSettings:
    """What can be chosen about files of JSON lines."""

    compression: str = field(default="none", metadata=option("compression", str.lower))


@dataclass(frozen=True, kw_only=True)
class JsonLinesFormat(JsonLinesSettings, FileFormat):
    """One JSON object per row and line.

    >>> JsonLinesFormat(compression="gzip").extension
    'json.gz'
    """

    name: ClassVar[str] = "json"

    def __post_init__(self) -> None:
        try:
            JsonCompression(self.compression)
        except ValueError:
            raise InvalidInputError(
                "unknown compression",
                found=repr(self.compression),
                expected=", ".join(each.value for each in JsonCompression),
            ) from None

    @property
    def extension(self) -> str:
        """What file names end with."""
        return JsonCompression(self.compression).extension

    @property
    def kind(self) -> str:
        """The extension: it says how the file is compressed."""
        return self.extension

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns that have no form in JSON."""
        for column in schema:
            fault = _fault(column.type)
            if fault is not None:
                raise InvalidInputError(
                    "a column cannot be written as JSON",
                    object_name=column.name,
                    found=f"{column.type}: {fault}",
                    action="cast or drop it before the sink",
                )

    def open_writer(self, schema: pa.Schema, state: WriterState | None) -> BatchBufferingWriter:
        """A writer of a new file, or of one that continues."""
        return JsonLinesWriter(schema, JsonCompression(self.compression), state)


def _fault(data_type: pa.DataType) -> str | None:
    """Why a type, or one inside it, has no form in JSON."""
    if pa.types.is_map(data_type) and not pa.types.is_string(data_type.key_type):
        return "the keys of an object are text"
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return "nanoseconds would be cut off"
    if pa.types.is_duration(data_type) or pa.types.is_interval(data_type) or pa.types.is_union(data_type):
        return "no common form"
    inner = [data_type.field(number).type for number in range(data_type.num_fields)]
    if pa.types.is_dictionary(data_type):
        inner = [data_type.value_type]
    return next(filter(None, map(_fault, inner)), None)
