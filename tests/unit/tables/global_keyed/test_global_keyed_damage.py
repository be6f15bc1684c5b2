from __future__ import annotations

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.replicated_operator import (
    ReplicatedOperator,
    operator_with,
    without_checksum,
)

from lakestate.errors import CorruptionError

# On the host that wrote a file, its cached copy is read, which is not damaged.
pytestmark = pytest.mark.parametrize("host", ["no-cache", "new-hosts"], indirect=True)


def damaged(operator: ReplicatedOperator, data: bytes) -> ReplicatedOperator:
    """The operator with other bytes in its newest file, checksum and all."""
    operator.overwrite(operator.files.files[0].path, data)
    operator.files = without_checksum(operator.files, data)
    operator.restore(1)
    return operator


def parquet(rows: pa.Table, operator: ReplicatedOperator, **changed: str) -> bytes:
    stored = pq.read_schema(BytesIO(operator.read(operator.files.files[0].path))).metadata
    stored = {name: value for name, value in stored.items() if name != b"ARROW:schema"}
    stored |= {f"lakestate.{name}".encode(): value.encode() for name, value in changed.items()}
    sink = BytesIO()
    pq.write_table(rows.replace_schema_metadata(stored), sink)
    return sink.getvalue()


def entry_rows(*entries: tuple[bytes | None, bytes | None]) -> pa.Table:
    nullable = any(key is None for key, _ in entries)
    schema = pa.schema([pa.field("key", pa.binary(), nullable), pa.field("value", pa.binary())])
    return pa.Table.from_pylist([{"key": key, "value": value} for key, value in entries], schema=schema)


def test_a_flipped_bit_is_found_and_the_file_named() -> None:
    operator = operator_with({"a": 1})
    file = operator.files.files[0]
    data = bytearray(operator.read(file.path))
    data[20] ^= 1
    operator.overwrite(file.path, bytes(data))
    operator.restore(1)
    with pytest.raises(CorruptionError, match=file.path):
        operator.views[0].get("a")


def test_a_missing_file_is_named() -> None:
    operator = operator_with({"a": 1})
    operator.objects.store.delete_many([operator.objects.store_path(operator.files.files[0].path)])
    operator.restore(1)
    with pytest.raises(CorruptionError, match=operator.files.files[0].path):
        operator.views[0].get("a")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(b"\xa1a", b"\xc1")], "value of table totals"),
        ([(b"\xa1a", b"\xa1x")], "Expected `int`, got `str`"),
        ([(b"\xa1a", b"")], "value of table totals"),
        ([(b"\x01", b"\x01")], "key of table totals"),
        ([(b"\xa1\xff", b"\x01")], "key of table totals"),
        ([(b"\xa1a", b"\x01"), (b"\xa1a", b"\x02")], "a key twice"),
        ([(None, b"\x01")], "key binary"),
    ],
)
def test_rows_that_are_not_entries_are_refused(entries: list[Any], expected: str) -> None:
    # As many rows as there were: another number would be refused before they are looked at.
    operator = operator_with({f"key-{number}": number for number in range(len(entries))})
    damaged(operator, parquet(entry_rows(*entries), operator))
    with pytest.raises(CorruptionError, match=expected) as caught:
        operator.views[0].get("a")
    assert operator.files.files[0].path in str(caught.value)


def test_a_file_with_other_columns_is_refused() -> None:
    operator = operator_with({"a": 1})
    damaged(operator, parquet(pa.table({"key": ["a"], "value": [1]}), operator))
    with pytest.raises(CorruptionError, match="key string, value int64"):
        operator.views[0].get("a")


def test_a_file_of_another_table_is_refused() -> None:
    operator = operator_with({"a": 1})
    damaged(operator, parquet(entry_rows((b"\xa1a", b"\x01")), operator, table="other"))
    with pytest.raises(CorruptionError, match="another table"):
        operator.views[0].get("a")


def test_something_that_is_not_parquet_is_refused() -> None:
    with pytest.raises(CorruptionError, match="not readable as Parquet"):
        damaged(operator_with({"a": 1}), b"not parquet").views[0].get("a")


def test_nothing_is_half_loaded() -> None:
    operator = operator_with({"a": 1})
    operator.views[0].insert("b", 2)
    operator.checkpoint()
    good = operator.read(operator.files.files[1].path)
    operator.overwrite(operator.files.files[1].path, b"damaged")
    operator.restore(1)
    with pytest.raises(CorruptionError):
        operator.views[0].get("b")
    operator.overwrite(operator.files.files[1].path, good)
    assert operator.views[0].get_all() == {"a": 1, "b": 2}
