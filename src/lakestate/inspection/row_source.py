"""Rows that can be read any number of times, for Arrow, pandas, Polars and DuckDB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakestate.errors import MissingExtraError
from lakestate.inspection.row_filter import RowFilter, Where, parse_where
from lakestate.sql_names import quote_identifier

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class RowSource(ABC):
    """Rows with a schema, which can be filtered. It is an Arrow stream (`__arrow_c_stream__`)."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the rows are called, in errors and as a view."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @abstractmethod
    def _read(self, rows: RowFilter, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """The rows that a filter selects, with some columns."""

    def reader(
        self, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """The rows, a batch at a time. Memory follows the size of row groups, not of the state."""
        return self._read(parse_where(where, self.schema, self.name), columns)

    def to_arrow(self, where: Where | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows as an Arrow table."""
        return self.reader(where, columns).read_all()

    def to_pandas(self, where: Where | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        _require_library("pandas")
        return self.to_arrow(where, columns).to_pandas()

    def to_polars(self, where: Where | None = None, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows as a Polars DataFrame."""
        frame: pl.DataFrame = _require_library("polars").DataFrame(self.to_arrow(where, columns))
        return frame

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str | None = None,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Make the rows a view of a DuckDB connection, under the name of the table or another one.

        Each query streams the rows again, with bounded memory. DuckDB does not push filters down: pass
        them in `where`.
        """
        view = name or self.name
        connection.register(view, _Selection(self, parse_where(where, self.schema, self.name), columns))
        return connection.table(quote_identifier(view))

    def read_filtered(self, rows: RowFilter) -> pa.Table:
        """The rows that a filter selects."""
        return self._read(rows, None).read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Some rows of a table, as a stream that can be read any number of times."""

    source: RowSource
    rows: RowFilter
    columns: Sequence[str] | None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.source._read(self.rows, self.columns).__arrow_c_stream__(requested_schema)


def _require_library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            f"this needs {name}", action=f"install it with: pip install {name}"
        ) from missing
