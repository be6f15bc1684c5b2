"""The hashes of keys, computed when a data file is read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.tables.runs.hashes import add_hashes
from lakestate.tables.runs.layout import HASH, KEY, RunLayout

FILE = "memory://x/job/checkpoints/1/operator-op/t-0-a1.parquet"


def layout(**options: object) -> RunLayout:
    return ls.KeyedTable("t", key="user string, item int", value="n bigint", **options).layout  # type: ignore[arg-type]


def stored(kind: RunLayout, count: int = 100) -> pa.Table:
    """Rows as a data file holds them: in order, without hashes."""
    users = pa.array([f"user-{number % 7}" for number in range(count)])
    items = pa.array(range(count), pa.int32())
    keys, hashes = kind.hashes([users, items])
    order = np.lexsort((keys,) if hashes is None else (hashes, keys))
    columns = {"user": users, "item": items, "n": range(count), "__removed": [False] * count}
    return pa.table(columns).take(order)


@pytest.mark.parametrize("route_by", [None, ["user"]], ids=["one hash", "two hashes"])
def test_hashes_are_those_of_the_key_columns_in_one_piece(route_by: list[str] | None) -> None:
    kind = layout(route_by=route_by)
    whole = stored(kind)
    pieces = pa.concat_tables([whole.slice(0, 30), whole.slice(30)])
    rows = add_hashes(pieces, kind, FILE)
    assert rows.column_names == kind.schema.names
    keys, hashes = kind.hashes([whole["user"].combine_chunks(), whole["item"].combine_chunks()])
    assert rows[KEY].num_chunks == 1
    assert np.array_equal(rows[KEY].to_numpy(), keys)
    if hashes is not None:
        assert np.array_equal(rows[HASH].to_numpy(), hashes)


def test_key_columns_may_have_had_other_names() -> None:
    kind = layout(route_by=["user"])
    older = stored(kind).rename_columns(["customer", "product", "n", "__removed"])
    assert add_hashes(older, kind, FILE)[KEY].equals(add_hashes(stored(kind), kind, FILE)[KEY])


def test_a_file_that_stores_hashes_is_refused() -> None:
    kind = layout()
    rows = add_hashes(stored(kind), kind, FILE)
    with pytest.raises(ls.IncompatibleStateError, match=f"{FILE}; found __key uint64, "):
        add_hashes(rows, kind, FILE)


@pytest.mark.parametrize("route_by", [None, ["user"]], ids=["one hash", "two hashes"])
def test_a_file_in_another_order_is_named(route_by: list[str] | None) -> None:
    kind = layout(route_by=route_by)
    rows = stored(kind)
    swapped = pa.concat_tables([rows.slice(0, 40), rows.slice(41, 1), rows.slice(40, 1), rows.slice(42)])
    with pytest.raises(ls.CorruptionError, match=f"{FILE}.*row 41 out of order"):
        add_hashes(swapped, kind, FILE)


def test_a_file_without_its_key_columns_is_named() -> None:
    with pytest.raises(ls.IncompatibleStateError, match=FILE):
        add_hashes(pa.table({"user": ["a"]}), layout(), FILE)
