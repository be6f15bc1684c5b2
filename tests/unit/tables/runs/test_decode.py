"""Decoding a data file in parts gives what decoding it as a whole gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs import decode
from lakestate.tables.runs.decode import decode_hashed_run
from lakestate.tables.runs.hashes import add_hashes
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.parquet import encode_run

FILE = "memory://x/job/checkpoints/1/operator-op/t-0-a1.parquet"
COUNT = 1000
MANY = ", ".join(f"v{number} bigint" for number in range(30))


def layout(key: str = "user string, item int", value: str = "n bigint", **options: object) -> RunLayout:
    return ls.KeyedTable("t", key=key, value=value, **options).layout  # type: ignore[arg-type]


def values_of(field: pa.Field) -> pa.Array:
    examples = {
        "string": [f"value-{number % 7}" for number in range(COUNT)],
        "bool": [number % 5 == 0 for number in range(COUNT)],
        "list": [["a"] * (number % 3) for number in range(COUNT)],
        "struct": [{"x": number, "y": None} for number in range(COUNT)],
    }
    return pa.array(examples.get(str(field.type).split("<")[0], range(COUNT)), field.type)


def stored(kind: RunLayout) -> pa.Table:
    """Rows as a data file holds them: in order, without hashes."""
    rows = pa.table([values_of(field) for field in kind.stored_schema], schema=kind.stored_schema)
    keys, hashes = kind.hashes([rows[name].combine_chunks() for name in kind.key_names])
    order = np.lexsort((keys,) if hashes is None else (hashes, keys))
    return rows.take(pa.array(order)).combine_chunks()


def file_of(kind: RunLayout, rows: pa.Table) -> pa.Buffer:
    return encode_run(rows, CheckpointParquetMetadata.of(kind.config).to_key_values())


@pytest.fixture(autouse=True)
def _every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "THREADED_BYTES_MIN", 0)


@pytest.mark.parametrize(
    "kind",
    [
        layout(),
        layout(route_by=["user"]),
        layout(value="a array<string>, s struct<x:bigint,y:string>, b boolean"),
        layout(key="k bigint", value=MANY),
        layout(ttl="1 hour"),
    ],
    ids=["one hash", "two hashes", "nested values", "many values", "times"],
)
def test_a_file_in_parts_has_the_rows_of_the_whole(kind: RunLayout) -> None:
    rows = stored(kind)
    found, identity = decode_hashed_run(file_of(kind, rows), kind, FILE, COUNT)
    assert found.equals(add_hashes(rows, kind, FILE))
    assert identity == CheckpointParquetMetadata.of(kind.config)
    assert found.schema.equals(kind.schema)


def test_columns_of_an_older_version_keep_their_names() -> None:
    kind = layout()
    older = stored(kind).rename_columns(["customer", "product", "total", "__removed"])
    found, _ = decode_hashed_run(file_of(kind, older), kind, FILE, COUNT)
    assert found.equals(add_hashes(older, kind, FILE))


def test_a_file_of_another_table_is_named_before_its_keys_are_hashed() -> None:
    other = ls.KeyedTable("other", key="m binary, k int", value="n bigint").layout
    rows = pa.table({"m": [[1.5]], "k": [1], "n": [1], "__removed": [False]})
    with pytest.raises(ls.CorruptionError, match=f"another table: {FILE}; found other"):
        decode_hashed_run(file_of(other, rows), layout(), FILE, 1)


def test_a_file_in_another_order_is_named() -> None:
    kind = layout()
    rows = stored(kind)
    swapped = pa.concat_tables([rows.slice(1, 1), rows.slice(0, 1), rows.slice(2)])
    with pytest.raises(ls.CorruptionError, match=f"{FILE}.*row 1 out of order"):
        decode_hashed_run(file_of(kind, swapped), kind, FILE, COUNT)


def test_a_file_with_another_number_of_rows_is_named() -> None:
    kind = layout()
    with pytest.raises(ls.CorruptionError, match=f"{FILE}; found {COUNT} rows; expected 7 rows"):
        decode_hashed_run(file_of(kind, stored(kind)), kind, FILE, 7)


def test_a_file_without_its_key_columns_is_named() -> None:
    kind = layout()
    with pytest.raises(ls.IncompatibleStateError, match=FILE):
        decode_hashed_run(file_of(kind, pa.table({"user": ["a"]})), kind, FILE, 1)


def test_a_damaged_column_is_named() -> None:
    kind = layout()
    data = bytearray(file_of(kind, stored(kind)))
    data[4:400] = bytes(396)
    with pytest.raises(ls.CorruptionError, match=f"not readable as Parquet: {FILE}"):
        decode_hashed_run(pa.py_buffer(bytes(data)), kind, FILE, COUNT)


def test_a_damaged_footer_is_named() -> None:
    with pytest.raises(ls.CorruptionError, match=f"not readable as Parquet: {FILE}"):
        decode_hashed_run(pa.py_buffer(b"no Parquet at all"), layout(), FILE, COUNT)
