"""One state table in one epoch: what it is, and its rows for Arrow, pandas, Polars and DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.inspection.listing import cell_text, data_text, html_table, row_items
from lakestate.inspection.row_filter import Keys, RowFilter, Where, key_filter, require_columns
from lakestate.inspection.row_source import RowSource
from lakestate.inspection.state import StateSource
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.values import Epoch

if TYPE_CHECKING:
    pass

ROWS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table: how it was declared, and the size of its data files; see `EpochInfo`."""

    operator: str
    table: str
    type: str
    key: str
    """The key columns, as they were declared."""
    value: str
    version: int
    """The newest state version. Files may hold rows of older ones: see `versions`."""
    rows: int
    size_bytes: int
    files: int
    versions: tuple[int, ...]
    """The state versions of the data files."""
    routed_by: str | None = None
    """The columns that rows are routed by, if they are not the key."""
    time: str | None = None
    """The column with the event time, if the table has one."""
    description: str = ""

    @classmethod
    def of(cls, operator: str, config: TableConfig, parts: Iterable[TableFiles | None]) -> TableInfo:
        """What a declaration and the files of all subtasks say."""
        files = {file.path: file for part in parts if part is not None for file in part.files}.values()
        key_names = tuple(column.name for column in config.key_columns)
        is_routed_by_key = config.routing_columns in ((), key_names)
        return cls(
            operator,
            config.name,
            str(config.table_type),
            ", ".join(map(str, config.key_columns)),
            ", ".join(map(str, config.value_columns)),
            config.state_version,
            sum(file.row_count for file in files),
            sum(file.size_bytes for file in files),
            len(files),
            tuple(sorted({file.state_version for file in files})),
            None if is_routed_by_key else ", ".join(config.routing_columns),
            config.time_column,
            config.description,
        )


class StateTable(RowSource):
    """A state table in one epoch, whose rows can be read any number of times.

    Overwritten, removed and expired rows are resolved: what is read is what a restored operator would see
    at the end of the epoch. Rows have no particular order. It is an Arrow stream (`__arrow_c_stream__`), so
    that libraries that read such streams take it as it is.

    `where` is a dict from columns to a value or a list of values, or an expression of `pyarrow.compute`.
    A dict with the columns that rows are routed by is pushed down: only the subtasks and row groups that can
    hold these keys are read. `columns` names the columns to return, and of large files only those are
    fetched.
    """

    def __init__(self, source: StateSource) -> None:
        self.source = source

    def __repr__(self) -> str:
        job, epoch = self.source.manifest.job_id, self.epoch
        return f"StateTable({job!r}, {self.operator!r}, {self.name!r}, epoch {epoch})"

    def _repr_html_(self) -> str:
        rows = self._head(ROWS_SHOWN)
        about = html_table(
            *zip(*((name, cell_text(name, item)) for name, item in row_items(self.info)), strict=True)
        )
        shown = [[data_text(item) for item in row.values()] for row in rows.to_pylist()]
        return f"{about}{html_table(rows.column_names, shown)}"

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.source.table.name

    @property
    def operator(self) -> str:
        """The operator that it belongs to."""
        return self.source.operator_id

    @property
    def epoch(self) -> Epoch:
        """The epoch that is read."""
        return self.source.manifest.epoch

    @property
    def declaration(self) -> TableConfig:
        """How the table was declared: columns, type, version, time to live, description."""
        return self.source.table.config

    @property
    def info(self) -> TableInfo:
        """The declaration as texts, and rows, bytes and files as they are stored."""
        return TableInfo.of(self.operator, self.declaration, (files for _, files in self.source.parts))

    @cached_property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(column.name for column in self.declaration.key_columns)

    @cached_property
    def value_columns(self) -> tuple[str, ...]:
        """The names of the value columns."""
        return tuple(column.name for column in self.declaration.value_columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows: keys, then values."""
        return self.source.schema

    def get(self, keys: Keys, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of some keys. A key without a row is not in the result.

        `keys` is a dict of key columns, a list of such dicts, or an Arrow table or batch with key columns;
        of a table with one key column also a value or a list of values. Only the first columns of the key,
        or any others, can be given: then all rows that match are returned.
        """
        return self._read(key_filter(keys, self.schema, self.key_columns, self.name), columns).read_all()

    def filter_of_one(self, key: Keys) -> RowFilter:
        """The filter for one whole key. Raises InvalidInputError for a part of one, or for several."""
        found = key_filter(key, self.schema, self.key_columns, self.name)
        given = {} if found.keys is None else found.keys
        if set(given) != set(self.key_columns) or any(len(values) != 1 for values in given.values()):
            raise InvalidInputError(
                "not one key",
                object_name=f"table {self.name}",
                found=repr(key)[:80],
                expected=f"one value for each of {', '.join(self.key_columns)}",
            )
        return found

    def count(self, where: Where | None = None) -> int:
        """The number of rows. Of large files, only the keys are fetched."""
        rows = self.reader(where, self.key_columns)
        return sum(batch.num_rows for batch in rows)

    def _read(self, rows: RowFilter, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        names = self.schema.names if columns is None else require_columns(columns, self.schema, self.name)
        read = [name for name in self.schema.names if name in names or name in rows.columns]
        schema = pa.schema([self.schema.field(name) for name in names])
        batches = (rows.apply(batch) for batch in self.source.batches(read, rows.keys))
        return pa.RecordBatchReader.from_batches(
            schema, (batch.select(names) for batch in batches if batch.num_rows)
        )

    def _head(self, count: int) -> pa.Table:
        taken: list[pa.RecordBatch] = []
        for batch in self.reader():
            taken.append(batch.slice(0, count))
            count -= taken[-1].num_rows
            if not count:
                break
        return pa.Table.from_batches(taken, self.schema)
