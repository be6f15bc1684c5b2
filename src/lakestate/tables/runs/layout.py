"""The layout of a table's rows in a run: which columns there are, and in which order.

A run holds `__key`, the routing key; `__hash`, the hash of the whole key, where that is finer than the
routing key; the key columns; the value columns; and `__removed` or `__updated`, where the table type
needs them. The two hashes follow from the key columns and are not stored: they do not compress, and
computing them is faster than fetching them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.names import nearest_names
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.hashing.routing import routing_keys

KEY = "__key"
HASH = "__hash"
REMOVED = "__removed"
UPDATED = "__updated"
QUERY = "__query"
"""In the answer to a search for keys: the row of the given keys that a row belongs to, from 0."""

Rows: TypeAlias = pa.RecordBatch | pa.Table
Hash = Callable[[Sequence[pa.Array]], "np.ndarray"]


@dataclass(frozen=True)
class RunLayout:
    """The columns of a table's runs. `hash` is replaced only to force collisions in tests."""

    config: TableConfig
    hash: Hash = routing_keys

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The key columns."""
        return tuple(column.name for column in self.config.key_columns)

    @cached_property
    def value_names(self) -> tuple[str, ...]:
        """The value columns."""
        return tuple(column.name for column in self.config.value_columns)

    @cached_property
    def has_fine_key(self) -> bool:
        """True if many keys may share one routing key."""
        return self.config.routing_columns != self.key_names

    @cached_property
    def has_removals(self) -> bool:
        """True if a row may mark its key as removed."""
        return self.config.table_type.has_tombstones

    @cached_property
    def has_updated(self) -> bool:
        """True if rows expire by the time they were written, which is then stored."""
        return self.config.ttl_us is not None and self.config.time_column is None

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a run."""
        internal = [pa.field(KEY, pa.uint64(), nullable=False)]
        if self.has_fine_key:
            internal.append(pa.field(HASH, pa.uint64(), nullable=False))
        trailing = []
        if self.has_removals:
            trailing.append(pa.field(REMOVED, pa.bool_(), nullable=False))
        if self.has_updated:
            trailing.append(pa.field(UPDATED, pa.timestamp("us", tz="UTC"), nullable=False))
        # A removed key has no values, so value columns are nullable in the file even if the user
        # declares them not null.
        values = [field.with_nullable(True) for field in self.value_fields]
        return pa.schema([*internal, *self.key_fields, *values, *trailing])

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The Arrow schema of a data file: that of a run without the hashes."""
        return pa.schema([field for field in self.schema if field.name not in (KEY, HASH)])

    @cached_property
    def fingerprint(self) -> str:
        """Differs when the columns of a run differ, internal ones included."""
        return xxhash.xxh3_64_hexdigest(f"{self.schema} v{self.config.state_version}".encode())

    @cached_property
    def key_fields(self) -> list[pa.Field]:
        """The key columns as Arrow fields."""
        return arrow_fields(self.config.key_columns)

    @cached_property
    def value_fields(self) -> list[pa.Field]:
        """The value columns as Arrow fields."""
        return arrow_fields(self.config.value_columns)

    @cached_property
    def value_schema(self) -> pa.Schema:
        """What a lookup returns."""
        return pa.schema([field.with_nullable(True) for field in self.value_fields])

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The rows that users put and scan: key columns, then value columns."""
        return pa.schema([*self.key_fields, *self.value_fields])

    def for_values(self, names: Collection[str] | None) -> RunLayout:
        """The layout with only some value columns, and the time by which rows expire; None stands for all.

        Raises InvalidInputError for a name that is no value column.
        """
        if names is None:
            return self
        if isinstance(names, str):
            raise InvalidInputError("columns takes a list of names", found=repr(names))
        key = frozenset(names)
        if key not in self._parts:
            self._check_values(names)
            kept = {*names, self.config.time_column}
            columns = tuple(column for column in self.config.value_columns if column.name in kept)
            is_whole = len(columns) == len(self.value_names)
            part = self if is_whole else replace(self, config=replace(self.config, value_columns=columns))
            self._parts[key] = part
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[frozenset[str], RunLayout]:
        return {}

    def _check_values(self, names: Collection[str]) -> None:
        unknown = [name for name in names if name not in self.value_names]
        if unknown:
            nearest = [near for name in unknown for near in nearest_names(name, self.value_names)]
            raise InvalidInputError(
                f"table {self.config.name} has no such value column",
                object_name=", ".join(unknown),
                found=", ".join(self.value_names),
                action=f"did you mean {' or '.join(nearest)}?" if nearest else None,
            )

    def mismatch(self, found: pa.Schema, object_name: str) -> IncompatibleStateError:
        """The error for a file whose columns are not those of this layout."""
        return IncompatibleStateError(
            f"columns of a data file do not fit table {self.config.name}",
            object_name=object_name,
            found=", ".join(f"{field.name} {field.type}" for field in found),
            expected=", ".join(f"{field.name} {field.type}" for field in self.schema),
            action="raise the table's state version and declare the change",
        )

    def hashes(self, keys: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray | None]:
        """The routing keys of rows, and the hashes of their whole keys where those are finer."""
        if not self.has_fine_key:
            return self.hash(keys), None
        by_name = dict(zip(self.key_names, keys, strict=True))
        return self.hash([by_name[name] for name in self.config.routing_columns]), self.hash(keys)
