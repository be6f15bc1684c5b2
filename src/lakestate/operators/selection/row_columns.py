"""What the operators of this folder share: the rows of an epoch, their columns and their event times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError, OperatorError
from lakestate.operators.selection.codes import Codes
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields, columns_of

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of rows, the names of their key, and of internal columns that are not passed on."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    internal: tuple[str, ...] = ()

    @classmethod
    def of(cls, key: str, columns: str) -> RowColumns:
        """The columns of rows whose key columns and other columns are declared like those of a table."""
        named = columns_of(key, what="key")
        rest = columns_of(columns, what="row") if columns else ()
        return cls((*named, *rest), tuple(column.name for column in named))

    @property
    def schema(self) -> pa.Schema:
        """All columns, internal ones too."""
        return pa.schema(arrow_fields(self.columns))

    @property
    def key_schema(self) -> pa.Schema:
        """The key columns."""
        by_name = {column.name: column for column in self.columns}
        return pa.schema(arrow_fields(by_name[name] for name in self.key))

    @property
    def values(self) -> tuple[Column, ...]:
        """All columns that are not part of the key, internal ones too."""
        return tuple(column for column in self.columns if column.name not in self.key)

    @property
    def output(self) -> tuple[Column, ...]:
        """The columns that are passed on."""
        return tuple(column for column in self.columns if column.name not in self.internal)

    @property
    def output_names(self) -> list[str]:
        """The names of the columns that are passed on."""
        return [column.name for column in self.output]

    def require_free(self, name: str, where: str) -> None:
        """Refuse rows that already have a column that the operator adds."""
        if any(column.name.lower() == name.lower() for column in self.columns):
            raise InvalidInputError(
                "the rows have a column with the name of one that is added",
                object_name=f"{name} of {where}",
                action=f'rename it first: select("{name} AS …", …)',
            )


def times_us(rows: pa.Table, column: str) -> Codes:
    """The event times of rows, in microseconds. A row without one is refused."""
    times = rows[column].combine_chunks()
    if times.null_count:
        raise OperatorError(
            "a row has no event time",
            object_name=column,
            found=f"{times.null_count} of {len(times)} rows",
            action=f'leave such rows out: where("{column} IS NOT NULL")',
        )
    values: Codes = times.cast(pa.int64()).to_numpy()
    return values


def not_before(rows: pa.Table, column: str, time_us: int | None) -> pa.Table:
    """The rows that are not older than a time. Null: all."""
    if time_us is None or not rows.num_rows:
        return rows
    is_open = times_us(rows, column) >= time_us
    return rows if is_open.all() else rows.filter(pa.array(is_open))


def add_us(times: Codes, duration_us: int) -> Codes:
    """Times and a duration, which may be negative; at most the last time, and at least the first."""
    if duration_us < 0:
        return np.maximum(times, _INT64_MIN - duration_us) + duration_us
    return np.minimum(times, _INT64_MAX - duration_us) + duration_us


def whole_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches as one table with one chunk per column."""
    return pa.Table.from_batches(batches).combine_chunks()


def with_change(rows: pa.Table, word: str, name: str) -> pa.Table:
    """Rows with a column that says what they do."""
    return rows.append_column(name, pa.repeat(word, rows.num_rows))


def is_true(flags: pa.Array) -> np.ndarray:
    """Flags as NumPy has them; null is false."""
    values: np.ndarray = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
    return values
