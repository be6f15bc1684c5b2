"""Files of tables of older state versions, and what an upgrade makes of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakestate.errors import IncompatibleStateError
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.migration.migrations import Migration, upgrade_of
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.layout import HASH, KEY, REMOVED, UPDATED, RunLayout

FILE = "memory://x/job/checkpoints/1/operator-op/users-0-a1.parquet"
Row = dict[str, Any]


def layout_of(key: str, value: str, version: int = 1, **options: Any) -> RunLayout:
    return KeyedTable("users", key=key, value=value, version=version, **options).layout


def file_rows(layout: RunLayout, rows: Sequence[Row], removed: Collection[int] = ()) -> pa.Table:
    """Rows as a file of this layout holds them; the numbers in `removed` say that their key is gone."""
    fields = layout.row_schema
    nulls = dict.fromkeys(layout.value_names)
    held = [row | nulls if number in removed else row for number, row in enumerate(rows)]
    users = {field.name: pa.array([row[field.name] for row in held], field.type) for field in fields}
    routing, fine = layout.hashes([users[name] for name in layout.key_names])
    columns = {KEY: pa.array(routing), **users}
    columns[REMOVED] = pa.array([number in removed for number in range(len(rows))])
    columns[UPDATED] = pa.array(np.arange(len(rows))).cast(pa.timestamp("us", tz="UTC"))
    if fine is not None:
        columns[HASH] = pa.array(fine)
    return pa.table([columns[name] for name in layout.schema.names], schema=layout.schema)


def upgraded(
    old: RunLayout,
    new: RunLayout,
    migrations: Sequence[Migration],
    rows: Sequence[Row],
    removed: Collection[int] = (),
) -> list[Row]:
    """What users see of a file of the old layout, after it was seen that the rest is untouched."""
    stored = file_rows(old, rows, removed)
    found = upgrade_of(new, migrations)(stored, CheckpointParquetMetadata.of(old.config), FILE)
    assert found.schema == new.schema
    for name in (KEY, REMOVED):
        assert found[name].equals(stored[name])
    result: list[Row] = found.select(new.row_schema.names).to_pylist()
    return result


def refusal(*arguments: Any) -> str:
    with pytest.raises(IncompatibleStateError) as caught:
        upgraded(*arguments)
    assert FILE in str(caught.value)
    assert "users" in str(caught.value)
    return str(caught.value)


V1 = layout_of("user string", "n int, old string")
ADA, BOB, EVE = (
    {"user": "ada", "n": 1, "old": "x"},
    {"user": "bob", "n": 2, "old": None},
    {"user": "eve", "n": None, "old": "z"},
)
