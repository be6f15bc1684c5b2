"""`TopRows`: the n first rows of each key by an order, updated in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.changes import change_rows
from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import Operator
from lakestate.operators.selection.codes import Codes, group_codes
from lakestate.operators.selection.order_by import OrderBy, check_sortable, order_rows, parse_order
from lakestate.operators.selection.row_columns import RowColumns, whole_table
from lakestate.operators.selection.sorted_rows import SortedRows, starts_of
from lakestate.protocol.metadata import Column
from lakestate.row_kind import CHANGE, DELETE, Emit
from lakestate.tables.arrow.columns import whole_column
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.tables.keyed.table import KeyedTable

RANK, PLACE = "rank", "place"


class Ties(Enum):
    """What to do with rows that the order leaves tied."""

    BREAK = "break"
    """Order them by all columns: exactly n rows, as SQL's `row_number()` numbers them."""
    ALL = "all"
    """Take all rows that are tied with the n-th one, as SQL's `rank()` numbers them."""

    @classmethod
    def of(cls, ties: Ties | str, where: str) -> Ties:
        """The rule of that name."""
        try:
            return cls(ties)
        except ValueError:
            expected = ", ".join(repr(each.value) for each in cls)
            raise InvalidInputError(
                "unknown rule for ties", object_name=where, found=ties, expected=expected
            ) from None


@dataclass(frozen=True, slots=True)
class Ranking:
    """How many rows of a group to keep, and by which order."""

    n: int
    order: tuple[OrderBy, ...]
    ties: Ties = Ties.BREAK

    def select(self, rows: pa.Table, groups: Sequence[Codes]) -> Ranked:
        """The best rows of each group, in order. Rows of a group have the same codes."""
        arranged = SortedRows.of([*groups, *order_rows(rows, self.order)])
        begins = arranged.begins_group(groups)
        before = starts_of(arranged.begins_run) - starts_of(begins)
        kept = before < self.n
        arranged, begins, before = arranged.keep(kept), begins[kept], before[kept]
        arranged = arranged.break_ties(rows)
        places = np.arange(len(begins)) - starts_of(begins)
        if self.ties is Ties.ALL:
            return Ranked(arranged.rows, begins, before + 1, places + 1)
        kept = places < self.n
        return Ranked(arranged.rows[kept], begins[kept], places[kept] + 1, places[kept] + 1)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The numbers of the best rows, by group and in order."""

    rows: Codes
    begins_group: npt.NDArray[np.bool_]
    ranks: Codes
    places: Codes
    """The place of each row in its group, from 1. Unlike ranks, no two are the same."""

    @property
    def groups(self) -> Codes:
        """The number of each row's group, from 0."""
        return np.cumsum(self.begins_group) - 1

    def take(self, chosen: Codes) -> Ranked:
        """Some of the rows."""
        begins = self.begins_group[chosen]
        return Ranked(self.rows[chosen], begins, self.ranks[chosen], self.places[chosen])


class TopRows(Operator):
    """Yields what changes among the n first rows of each key.

    >>> from lakestate.testing import OperatorHarness
    >>> best = TopRows.over("auction int", "bidder string, price int", n=2, by="price desc")
    >>> harness = OperatorHarness(best)
    >>> harness.epoch([{"auction": 1, "bidder": "a", "price": 5}, {"auction": 1, "bidder": "b", "price": 7}])
    [{'auction': 1, 'bidder': 'b', 'price': 7, 'rank': 1},
     {'auction': 1, 'bidder': 'a', 'price': 5, 'rank': 2}]
    >>> harness.epoch([{"auction": 1, "bidder": "c", "price": 6}])
    [{'auction': 1, 'bidder': 'c', 'price': 6, 'rank': 2}]
    """

    def __init__(self, rows: RowColumns, ranking: Ranking, *, emit: Emit = Emit.UPDATES) -> None:
        self._columns = rows
        self._ranking = ranking
        self._emit = emit
        self._rows: list[pa.RecordBatch] = []
        check_sortable(ranking.order, rows.schema, "top")
        added = rank_columns(ranking.ties)
        for column in added:
            rows.require_free(column.name, "top")
        changes = (Column(CHANGE, "string"),) if emit is Emit.CHANGES else ()
        self.input = rows.schema
        self.output = pa.schema(arrow_fields((*rows.output, *added, *changes)))
        self._yielded = [column.name for column in (*rows.output, *added)]
        self._place = added[-1].name
        values = (*rows.values, *added[:-1])
        if not values:
            raise InvalidInputError(
                "rows that have nothing but a key cannot be ranked",
                object_name="top",
                action="keep more columns",
            )
        self.best = KeyedTable(
            key=pa.schema([*rows.key_schema, *arrow_fields(added[-1:])]),
            value=pa.schema(arrow_fields(values)),
            route_by=rows.key,
            description="The best rows of every key, by place.",
        )

    @classmethod
    def over(
        cls, key: str, columns: str, *, n: int, by: str, ties: str = "break", emit: str = "updates"
    ) -> Any:
        """The operator over rows with these key and other columns, for tests without Spark.

        `by` takes names of columns: expressions need Spark.
        """
        ranking = Ranking(n, parse_order(by, "top"), Ties.of(ties, "top"))
        return cls(RowColumns.of(key, columns), ranking, emit=Emit.of(emit, "top"))

    def process_batch(self, batch: pa.RecordBatch, ctx: OperatorContext) -> None:
        """Keep the rows until all are there: then every key is looked up once."""
        self._rows.append(batch)

    def on_epoch_end(self, ctx: OperatorContext) -> Iterator[pa.Table]:
        """Merge the best rows of the epoch with those so far, and yield what changed."""
        if not self._rows:
            return
        rows = whole_table(self._rows)
        self._rows = []
        best = self._ranking.select(rows, group_codes(rows.select(self._columns.key).columns))
        rows, groups = rows.take(pa.array(best.rows)), best.groups
        view, names = ctx.view("best"), rows.column_names
        keys = rows.select(self._columns.key).filter(pa.array(best.begins_group))
        stored = _Stored.find(view, keys, self._place)
        both = pa.concat_tables([stored.rows.select(names), rows]).combine_chunks()
        groups = np.concatenate([stored.groups, groups])
        # A row that is the same as a stored one comes after it, and changes nothing.
        is_new = np.arange(len(groups)) >= len(stored.groups)
        merged = self._ranking.select(both.append_column("__new", pa.array(is_new)), [groups])
        yield from self._store(view, both, merged, stored)

    def _store(self, view: Any, both: pa.Table, merged: Ranked, stored: _Stored) -> Iterator[pa.Table]:
        changed = np.flatnonzero(stored.places_of(merged.rows) != merged.places)
        rows = with_ranks(both.take(pa.array(merged.rows[changed])), merged.take(changed), self._ranking.ties)
        view.put(rows)
        if self._emit is Emit.UPDATES:
            yield rows.select(self._yielded)
            return
        gone = stored.beyond(np.bincount(merged.groups))
        view.delete(gone)
        yield gone.select(self._yielded).append_column(CHANGE, pa.repeat(DELETE, gone.num_rows))
        before, was = stored.at(merged.groups[changed], merged.places[changed])
        there = pa.array(np.ones(len(changed), dtype=bool))
        yield change_rows(before.select(self._yielded), rows.select(self._yielded), was, there, there)


@dataclass(frozen=True, slots=True)
class _Stored:
    """The best rows so far of some groups, in order. The places of a group are 1, 2, 3 and so on."""

    rows: pa.Table
    groups: Codes
    places: Codes

    @classmethod
    def find(cls, view: Any, keys: pa.Table, place: str) -> _Stored:
        """The rows of keys. Group i is that of key i."""
        found = view.get_prefix(keys).combine_chunks()
        groups = whole_column(found[view.QUERY]).to_numpy()
        places = whole_column(found[place]).to_numpy().astype(np.int64)
        order = np.lexsort((places, groups))
        return cls(found.take(pa.array(order)), groups[order], places[order])

    def places_of(self, rows: Codes) -> Codes:
        """The place that each row has had. Rows from the number of those stored on are new, and had none."""
        known = np.append(self.places, 0)
        return known[np.minimum(rows, len(self.places))]

    def at(self, groups: Codes, places: Codes) -> tuple[pa.Table, pa.Array]:
        """The rows that were at places of groups, nulls where none was, and whether one was."""
        numbers = np.searchsorted(self.groups, groups, "left") + places - 1
        was = numbers < np.searchsorted(self.groups, groups, "right")
        return self.rows.take(pa.array(numbers, mask=~was)), pa.array(was)

    def beyond(self, counts: Codes) -> pa.Table:
        """The rows at places that no longer exist, given how many there are in each group."""
        return self.rows.filter(pa.array(self.places > counts[self.groups]))


def rank_columns(ties: Ties) -> tuple[Column, ...]:
    """The columns that are added to rows. The last one tells the rows of a group apart."""
    return (Column(RANK, "int"),) if ties is Ties.BREAK else (Column(RANK, "int"), Column(PLACE, "int"))


def with_ranks(rows: pa.Table, ranked: Ranked, ties: Ties) -> pa.Table:
    """Rows with the columns that are added to them."""
    for column in rank_columns(ties):
        values = ranked.ranks if column.name == RANK else ranked.places
        rows = rows.append_column(column.name, pa.array(values.astype(np.int32)))
    return rows
