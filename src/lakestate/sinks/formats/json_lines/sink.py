"""`JsonLinesSink`: exactly-once files of JSON lines that stay open across epochs."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.json_lines.format import JsonLinesFormat, JsonLinesSettings


@dataclass(frozen=True, repr=False)
class JsonLinesSink(JsonLinesSettings, FileSink):
    """Writes one JSON object per row, in files that become visible exactly once.

    Times are written as ISO 8601, bytes as Base64, decimals as numbers, maps as objects.

    >>> JsonLinesSink("file:///data/out", compression="gzip").naming.extension
    'json.gz'
    """

    format: FileFormat | str = field(init=False, repr=False, default=JsonLinesFormat.name)

    # Not that of the settings, which come first.
    __repr__ = FileSink.__repr__

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", JsonLinesFormat(compression=self.compression))
        super().__post_init__()
