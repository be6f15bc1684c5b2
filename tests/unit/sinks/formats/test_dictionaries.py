"""Columns whose values hardly repeat are written without a dictionary, whatever surrounds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakestate.sinks.formats.parquet.dictionary_columns import ROWS_MIN, dictionary_columns
from lakestate.sinks.formats.parquet.segment import MAGIC, ParquetEncoding, encode_segment, trailing_footer

COUNT = ROWS_MIN
UNIQUE = np.random.default_rng(1).permutation(COUNT)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"kind": UNIQUE % 7}, True),
        ({"id": UNIQUE}, False),
        ({"id": UNIQUE, "kind": UNIQUE % 7}, ["kind"]),
        ({"rhythm": np.arange(COUNT) % 8192}, True),
        ({"text": pa.array(UNIQUE).cast(pa.string()), "kind": UNIQUE % 7}, ["kind"]),
        ({"empty": pa.nulls(COUNT, pa.int64()), "id": UNIQUE}, ["empty"]),
        (
            {"id": UNIQUE, "pair": pa.array([{"a": 1, "b": [2]}] * COUNT)},
            ["pair.a", "pair.b.list.element"],
        ),
        ({"coded": pa.array(UNIQUE).dictionary_encode()}, True),
    ],
)
def test_the_columns_with_a_dictionary(columns: dict[str, object], expected: object) -> None:
    assert dictionary_columns(pa.table(columns)) == expected


def test_few_rows_always_have_dictionaries() -> None:
    assert dictionary_columns(pa.table({"id": UNIQUE[:-1]})) is True


def test_a_row_group_is_what_it_was_and_says_how_it_is_encoded() -> None:
    rows = pa.table({"id": UNIQUE, "kind": UNIQUE % 7, "pair": pa.array([{"a": 1, "b": [2]}] * COUNT)})
    segment = encode_segment(rows, len(MAGIC), ParquetEncoding())
    file = b"".join([MAGIC, segment.body, trailing_footer([segment.footer])])
    assert pq.read_table(pa.BufferReader(file)).equals(rows)
    group = pq.ParquetFile(pa.BufferReader(file)).metadata.row_group(0)
    found = {
        group.column(number).path_in_schema: group.column(number).has_dictionary_page for number in range(4)
    }
    assert found == {"id": False, "kind": True, "pair.a": True, "pair.b.list.element": True}
