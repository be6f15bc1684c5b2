"""How a data file describes itself in Parquet's key-value metadata.

Any Parquet tool shows it. A reader compares it with what it expects, so that a misplaced file is named
and not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.protocol.metadata import TableConfig

DATA_FORMAT = 1
_PREFIX = "lakestate."


@dataclass(frozen=True, slots=True)
class CheckpointParquetMetadata:
    """The identity of a data file.

    >>> stored = CheckpointParquetMetadata("users", "keyed", 2, ("user",)).to_key_values()
    >>> CheckpointParquetMetadata.from_key_values(stored, "users-0.parquet").state_version
    2
    """

    table: str
    table_type: str
    state_version: int
    key_columns: tuple[str, ...]
    format_version: int = DATA_FORMAT

    @classmethod
    def of(cls, config: TableConfig) -> CheckpointParquetMetadata:
        """The identity that files of a declared table have."""
        keys = tuple(column.name for column in config.key_columns)
        return cls(config.name, config.table_type.name, config.state_version, keys)

    def to_key_values(self) -> dict[bytes, bytes]:
        """As Parquet stores it."""
        values = {
            "format_version": str(self.format_version),
            "table": self.table,
            "table_type": self.table_type,
            "state_version": str(self.state_version),
            "key_columns": ",".join(self.key_columns),
        }
        return {f"{_PREFIX}{name}".encode(): value.encode() for name, value in values.items()}

    @classmethod
    def from_key_values(
        cls, stored: Mapping[bytes, bytes] | None, object_name: str
    ) -> CheckpointParquetMetadata:
        """From what Parquet stored; CorruptionError if the file is not ours."""
        try:
            known = {name: (stored or {})[f"{_PREFIX}{name}".encode()].decode() for name in _NAMES}
            version = int(known["format_version"])
            if version < 1:
                raise ValueError(f"format {version}")
            if version > DATA_FORMAT:
                raise IncompatibleStateError(
                    "data file of a newer format",
                    object_name=object_name,
                    found=f"format {version}",
                    expected=f"at most {DATA_FORMAT}",
                    action="use a newer version of Lakestate",
                )
            return cls(
                table=known["table"],
                table_type=known["table_type"],
                state_version=int(known["state_version"]),
                key_columns=tuple(filter(None, known["key_columns"].split(","))),
                format_version=version,
            )
        except (KeyError, ValueError, UnicodeDecodeError) as cause:
            raise CorruptionError(
                "not a data file of a state table", object_name=object_name, found=f"no valid {cause}"
            ) from cause

    def check(self, config: TableConfig, object_name: str) -> None:
        """Refuse a file of another table."""
        if (self.table, self.table_type) != (config.name, config.table_type.name):
            raise CorruptionError(
                "data file of another table",
                object_name=object_name,
                found=f"{self.table} ({self.table_type})",
                expected=f"{config.name} ({config.table_type})",
            )


_NAMES = ("format_version", "table", "table_type", "state_version", "key_columns")
