"""Searching a `KeyedTable` by the first columns of its key.

Runs are sorted by routing key, and a prefix contains the routing columns: a binary search finds the rows
of its routing key, and a comparison of the columns the rows of the prefix. The cost follows the number of
rows with those routing keys, not the size of the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.tables.arrow.conform import conform_columns
from lakestate.tables.runs.key_equality import same_keys
from lakestate.tables.runs.layout import Rows, RunLayout
from lakestate.tables.runs.lookup import key_spans, span_places
from lakestate.tables.runs.run import Run


@dataclass(frozen=True)
class PrefixQuery:
    """Prefixes to look for, in ascending order of routing key."""

    names: tuple[str, ...]
    keys: np.ndarray
    columns: list[pa.Array]
    order: np.ndarray
    """For each row, its place among the given prefixes."""

    @classmethod
    def of(cls, layout: RunLayout, keys: Rows) -> PrefixQuery:
        """The prefixes in the key columns that `keys` has."""
        names = _prefix_names(layout, keys)
        fields = layout.key_fields[: len(names)]
        columns = dict(
            zip(names, conform_columns(keys, fields, f"get_prefix on {layout.config.name}"), strict=True)
        )
        routing = layout.hash([columns[name] for name in layout.config.routing_columns])
        order = np.argsort(routing, kind="stable")
        indices = pa.array(order)
        return cls(names, routing[order], [pc.take(column, indices) for column in columns.values()], order)

    @cached_property
    def _has_one_of_each(self) -> bool:
        """Whether no two prefixes have the same routing key."""
        return bool((self.keys[1:] != self.keys[:-1]).all())

    def rows_of(self, candidates: Run) -> tuple[np.ndarray, np.ndarray]:
        """The same as `matches` for candidates of all runs, which need not be compared again."""
        if not self._has_one_of_each:
            return self.matches(candidates)
        return np.arange(len(candidates)), np.searchsorted(self.keys, candidates.keys)

    def matches(self, run: Run) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a run that begin with a prefix: their places, and the rows of this query."""
        found, low, high = key_spans(run, self.keys)
        places, rows = span_places(low, high)
        rows = found[rows]
        asked, there = pa.array(rows), pa.array(places)
        same = same_keys(
            [pc.take(column, asked) for column in self.columns],
            [run.take(name, there) for name in self.names],
        )
        return places[same], rows[same]

    def candidates(self, run: Run) -> Run:
        """The rows of a run that begin with one of the prefixes, each once, in the order of the run."""
        # They are nearly in order, which this sort makes use of.
        places = np.sort(self.matches(run)[0], kind="stable")
        is_first = np.ones(len(places), dtype=bool)
        is_first[1:] = places[1:] != places[:-1]
        indices = pa.array(places[is_first])
        columns = [run.take(name, indices) for name in run.rows.column_names]
        return Run(pa.Table.from_arrays(columns, schema=run.rows.schema), run.layout)


def _prefix_names(layout: RunLayout, keys: Rows) -> tuple[str, ...]:
    """The key columns that are given: the first ones of the key, among them all that rows are routed by."""
    given = [name for name in layout.key_names if name in keys.schema.names]
    routing = layout.config.routing_columns
    is_prefix = tuple(given) == layout.key_names[: len(given)]
    if not given or not is_prefix or not set(routing) <= set(given):
        whole = ", ".join(layout.key_names)
        raise InvalidInputError(
            "not a prefix of the key that can be searched for",
            object_name=f"table {layout.config.name}",
            found=", ".join(given) or "no key column",
            expected=f"the first columns of ({whole}), with {', '.join(routing)} among them",
            action="give these columns; put those of route_by first when you declare the key",
        )
    return tuple(given)
