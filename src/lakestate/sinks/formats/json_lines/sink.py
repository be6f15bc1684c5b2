"""`JsonLinesSink`: exactly-once files of JSON lines that stay open across epochs."""

from __future__ import annotations

import hashlib
from dataclasses import KW_ONLY, dataclass

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.sinks.files.destination import BatchBufferingWriter
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.files.writer_state import WriterState
from lakestate.sinks.formats.json_lines.writer import JsonCompression, JsonLinesWriter


@dataclass(frozen=True)
class JsonLinesSink(FileSink):
    """Writes one JSON object per row, in files that become visible exactly once.

    Times are written as ISO 8601, bytes as Base64, decimals as numbers, maps as objects.

    >>> JsonLinesSink("file:///data/out", compression="gzip").extension
    'json.gz'
    """

    _: KW_ONLY
    compression: str = "none"

    def __post_init__(self) -> None:
        try:
            JsonCompression(self.compression)
        except ValueError:
            raise InvalidInputError(
                "unknown compression",
                found=repr(self.compression),
                expected=", ".join(each.value for each in JsonCompression),
            ) from None
        super().__post_init__()

    @property
    def extension(self) -> str:
        """What file names end with."""
        return JsonCompression(self.compression).extension

    def format_of(self, schema: pa.Schema) -> str:
        """Files with the same columns and compression can go on."""
        digest = hashlib.blake2b(schema.serialize().to_pybytes(), digest_size=8).hexdigest()
        return f"{self.extension}-{digest}"

    def check_rows(self, schema: pa.Schema) -> None:
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

    def new_file(self, schema: pa.Schema) -> BatchBufferingWriter:
        """A writer of a new file."""
        return JsonLinesWriter(schema, JsonCompression(self.compression))

    def resume_file(self, schema: pa.Schema, state: WriterState) -> BatchBufferingWriter:
        """A writer of a file that goes on."""
        return JsonLinesWriter.resume(schema, state, JsonCompression(self.compression))


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
