"""Fills tables with initial state, before the first rows of a job are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.tables.keyed.view import KeyedView
from lakestate.tables.manager import TableManager
from lakestate.tables.time_key.view import TimeKeyView


def initial_input(step_id: str, table: str) -> str:
    """The name of the input whose rows go into a table. An id has no slash.

    >>> initial_input("totals", "sums")
    'totals/sums'
    """
    return f"{step_id}/{table}"


def fill_tables(batches: Iterable[tuple[str, pa.RecordBatch]], managers: Mapping[str, TableManager]) -> None:
    """Put rows into the tables that their inputs name, and refuse two rows with the same key."""
    counts: dict[str, int] = {}
    for name, batch in batches:
        counts[name] = counts.get(name, 0) + batch.num_rows
        view = _view(name, managers)
        if isinstance(view, TimeKeyView):
            view.insert(batch)
        else:
            view.put(batch)
    for name, count in counts.items():
        view = _view(name, managers)
        if isinstance(view, KeyedView) and (kept := view.count()) != count:
            raise InvalidInputError(
                "rows of an initial state have the same key",
                object_name=f"table {name.replace('/', '.')}",
                found=f"{count:,} rows with {kept:,} keys",
                action="give one row for each key",
            )


def _view(name: str, managers: Mapping[str, TableManager]) -> Any:
    step, _, table = name.partition("/")
    return managers[step].view(table)
