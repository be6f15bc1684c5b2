"""`JoinOperator`: what joins of two streams have in common: their columns, and the rows that they yield."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakestate.operators.context import OperatorContext
from lakestate.operators.joins.how import How
from lakestate.operators.joins.matching import Matches
from lakestate.operators.joins.side import JoinSide
from lakestate.operators.operator import TwoInputOperator
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.arrow.wide_text import combine_chunks


class JoinOperator(TwoInputOperator):
    """Joins two streams whose key columns have the same names, and whose other columns have not."""

    def __init__(
        self,
        left: JoinSide,
        right: JoinSide,
        how: How,
        *,
        between: Sequence[Column] = (),
        hidden: Sequence[str] = (),
        output_time: str | None = None,
    ) -> None:
        self._left = left
        self._right = right
        self._how = how
        self._new: dict[str, list[pa.RecordBatch]] = {"left": [], "right": []}
        self._schema = pa.schema(arrow_fields(_output(left, right, how, between, hidden)))
        self.output = self._schema
        self.output_time = output_time

    def needed_columns(self, input_name: str) -> pa.Schema:
        """The columns of a side."""
        side = self._left if input_name == "left" else self._right
        return pa.schema(arrow_fields(side.columns))

    def process(self, input_name: str, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there."""
        self._new[input_name].append(batch)

    def _take_new(self, side: JoinSide) -> pa.Table:
        schema = pa.schema(arrow_fields(side.columns))
        rows = pa.Table.from_batches(self._new[side.name], schema=schema)
        self._new[side.name] = []
        return combine_chunks(rows)

    def _pairs(self, left: pa.Table, right: pa.Table, matches: Matches) -> Iterator[pa.Table]:
        for left_numbers, right_numbers in matches.pairs():
            left_part, right_part = pa.array(left_numbers), pa.array(right_numbers)
            columns = {name: left[name].take(left_part) for name in self._output_names(left)}
            others = [name for name in self._output_names(right) if name not in columns]
            columns |= {name: right[name].take(right_part) for name in others}
            yield pa.table(columns)

    def _alone(self, side: JoinSide, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows of one side, with nulls for the columns of the other."""
        if rows.num_rows:
            known = self._output_names(rows)
            yield pa.table(
                [
                    rows[field.name] if field.name in known else pa.nulls(rows.num_rows, field.type)
                    for field in self._schema
                ],
                names=self._schema.names,
            )

    def _output_names(self, rows: pa.Table) -> list[str]:
        return [name for name in self._schema.names if name in rows.column_names]


def _output(
    left: JoinSide, right: JoinSide, how: How, between: Sequence[Column], hidden: Sequence[str]
) -> tuple[Column, ...]:
    """The columns of the left side, those between, and the others of the right side if pairs come out."""
    shown = [*(column for column in left.columns if column.name not in hidden), *between]
    if how.yields_pairs:
        names = [column.name for column in shown]
        shown += [column for column in right.columns if column.name not in (*names, *hidden)]
    # A row without a match has no values on the other side.
    return tuple(Column(column.name, column.type) for column in shown)
