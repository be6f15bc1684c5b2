"""The rows of an epoch as one merge into a Delta table: the last row of each key counts.

A merge rewrites every file that holds a row which it changes. Files whose bounds exclude all keys of the
epoch are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties

from lakestate.row_kind import BEFORE, CHANGE, DELETE
from lakestate.sinks.delta.types import is_inexact_in_bounds
from lakestate.sql_names import quote_identifier

_ORDER = "_lakestate_order"
_CODECS: dict[str, Any] = {
    "none": "UNCOMPRESSED",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "zstd": "ZSTD",
    "lz4_raw": "LZ4_RAW",
}
"""Codecs, as deltalake names them."""


@dataclass(frozen=True, slots=True)
class TableMerge:
    """The newest row of each key, and whether it is deleted if the rows are changes."""

    rows: pa.Table
    key: tuple[str, ...]
    compression: str

    def commit(self, table: DeltaTable, properties: CommitProperties) -> None:
        """Merge in one commit of the table as it was read."""
        version = table.version()
        if len(self.rows):
            self._merge(table, properties)
        if table.version() == version:
            # Nothing changed, and deltalake made no commit. That the epoch is done is recorded all the same.
            by = table.metadata().partition_columns
            table.create_write_transaction([], "append", table.schema(), by, commit_properties=properties)

    def _merge(self, table: DeltaTable, properties: CommitProperties) -> None:
        merger = table.merge(
            self.rows,
            " AND ".join(
                f"target.{quote_identifier(name)} = source.{quote_identifier(name)}" for name in self.key
            ),
            source_alias="source",
            target_alias="target",
            writer_properties=_writer_properties(pa.schema(table.schema().to_arrow()), self.compression),
            # The rows are in memory already; so their keys exclude files.
            streamed_exec=False,
            commit_properties=properties,
        )
        if CHANGE not in self.rows.schema.names:
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
            return
        is_deleted = f"source.{quote_identifier(CHANGE)} = '{DELETE}'"
        (
            merger.when_matched_delete(is_deleted)
            .when_matched_update_all(except_cols=[CHANGE])
            .when_not_matched_insert_all(f"NOT ({is_deleted})", except_cols=[CHANGE])
            .execute()
        )


def _writer_properties(schema: pa.Schema, compression: str) -> WriterProperties:
    """How deltalake writes files of a table: without bounds of decimals that it would round.

    It takes no settings for single fields of a struct, so that where one has such a decimal, none has bounds.
    """
    none, chosen = ColumnProperties(statistics_enabled="NONE"), {}
    is_nested = any(_has_inexact(each.type) for each in schema if pa.types.is_nested(each.type))
    for each in schema:
        if is_inexact_in_bounds(each.type):
            chosen[each.name] = none
        elif is_nested and not pa.types.is_nested(each.type):
            chosen[each.name] = ColumnProperties(statistics_enabled="PAGE")
    return WriterProperties(
        compression=_CODECS[compression],
        column_properties=chosen or None,
        default_column_properties=none if is_nested else None,
    )


def _has_inexact(given: pa.DataType) -> bool:
    inner = (given.field(number).type for number in range(given.num_fields))
    return is_inexact_in_bounds(given) or any(map(_has_inexact, inner))


def newest_by_key(tables: Iterable[pa.Table], key: Sequence[str]) -> pa.Table:
    """The last row of each key. Of changes, rows before an update are left out.

    >>> rows = pa.table({"k": ["a", "b", "a"], "n": [1, 2, 3]})
    >>> newest_by_key([rows], ["k"]).to_pylist()
    [{'k': 'b', 'n': 2}, {'k': 'a', 'n': 3}]
    """
    rows = pa.concat_tables(tables)
    if CHANGE in rows.schema.names:
        rows = rows.filter(pc.not_equal(rows[CHANGE], BEFORE))
    numbered = rows.select(list(key)).append_column(_ORDER, pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(list(key)).aggregate([(_ORDER, "max")])[f"{_ORDER}_max"]
    return rows.take(last.sort())
