"""Which columns of PostgreSQL hold every value of a column of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.sinks.postgres.types import TargetColumn, column_type, holds

UTC_TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("type_name", "modifier", "given", "is_held"),
    [
        ("timestamptz", -1, UTC_TIME, True),
        ("timestamptz", 6, UTC_TIME, True),
        ("timestamptz", 3, UTC_TIME, False),
        ("timestamptz", 3, pa.timestamp("ms", "UTC"), True),
        ("timestamp", 0, pa.timestamp("us"), False),
        ("timestamp", -1, UTC_TIME, False),
        ("time", 5, pa.time64("us"), False),
        ("time", -1, pa.time64("us"), True),
    ],
)
def test_a_column_that_would_round_times_does_not_hold_them(
    type_name: str, modifier: int, given: pa.DataType, is_held: bool
) -> None:
    assert holds(TargetColumn("ts", type_name, type_name, modifier), given) is is_held


@pytest.mark.parametrize("key", [pa.date32(), pa.binary(), pa.decimal128(5, 2), pa.list_(pa.int8())])
def test_a_map_whose_keys_are_no_texts_in_json_is_refused_at_the_start(key: pa.DataType) -> None:
    given = pa.list_(pa.struct([("counts", pa.map_(key, pa.int64()))]))
    with pytest.raises(InvalidInputError, match="no column for values of this type: column tags"):
        column_type(given, "tags")
    assert not holds(TargetColumn("tags", "jsonb", "jsonb"), given)


def test_maps_by_text_number_or_flag_are_json() -> None:
    for key in (pa.string(), pa.int32(), pa.bool_(), pa.float64()):
        assert column_type(pa.map_(key, pa.list_(pa.date32())), "tags") == "jsonb"
