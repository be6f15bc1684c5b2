from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.parquet.segment import ParquetEncoding
from lakestate.sinks.formats.parquet.writer import ParquetBatchBufferingWriter
from lakestate.sinks.formats.writer_state import PieceKind, WriterState

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(first: int, count: int = 100) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch({"n": numbers, "text": [f"text {n}" for n in numbers]}, schema=SCHEMA)


def read(*parts: bytes) -> list[int]:
    return list(pq.read_table(pa.BufferReader(b"".join(parts)))["n"].to_pylist())


def through_storage(state: WriterState) -> WriterState:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=WriterState)


def writer(kept: int = 10**6, group: int | str = "128MB") -> ParquetBatchBufferingWriter:
    return ParquetBatchBufferingWriter(
        SCHEMA, ParquetEncoding("none"), row_group_bytes=group, kept_row_bytes=kept
    )


def resumed(state: WriterState, kept: int = 10**6) -> ParquetBatchBufferingWriter:
    return ParquetBatchBufferingWriter.resume(
        SCHEMA, through_storage(state), ParquetEncoding("none"), kept_row_bytes=kept
    )


def test_a_row_group_ends_when_it_is_large_enough() -> None:
    open_file = writer(group=rows(0).nbytes)
    assert open_file.unflushed_bytes == 0
    open_file.add_batch_data(rows(0))
    open_file.add_batch_data(rows(100, 10))
    assert open_file.unflushed_bytes == rows(100, 10).nbytes
    assert open_file.buffered_bytes > 100
    file, _ = open_file.close()
    metadata = pq.read_metadata(pa.BufferReader(file))
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [100, 10]


def test_short_epochs_do_not_make_small_row_groups() -> None:
    open_file = writer()
    for epoch in range(20):
        open_file.add_batch_data(rows(epoch * 100))
        open_file = resumed(open_file.checkpoint())
    file, statistics = open_file.close()
    assert read(file) == list(range(2_000))
    assert pq.read_metadata(pa.BufferReader(file)).num_row_groups == 1
    assert statistics.row_count == 2_000


def test_a_checkpoint_ends_the_row_group_of_many_rows() -> None:
    open_file = writer(kept=rows(0).nbytes - 1)
    open_file.add_batch_data(rows(0))
    state = open_file.checkpoint()
    assert [piece.kind for piece in state.pieces] == [PieceKind.FOOTER, PieceKind.BYTES]
    assert resumed(state).unflushed_bytes == 0


def test_a_checkpoint_adds_only_pieces_that_are_new() -> None:
    open_file, seen = writer(), set()
    for epoch in range(5):
        open_file.add_batch_data(rows(epoch * 100))
        state = open_file.checkpoint()
        new = [piece for piece in state.pieces if piece.number not in seen]
        # The first holds the magic, too.
        assert len(new) == (2 if epoch == 0 else 1)
        seen |= {piece.number for piece in new}
        open_file = resumed(state)


def test_parts_are_taken_from_the_front_in_any_process() -> None:
    open_file, parts = writer(kept=0), []
    for epoch in range(6):
        open_file.add_batch_data(rows(epoch * 100))
        open_file.settle()
        while open_file.buffered_bytes >= 1_000:
            parts.append(open_file.split_to(1_000))
        state = open_file.checkpoint()
        assert state.start == len(parts) * 1_000
        open_file = resumed(state, kept=0)
    rest, _ = open_file.close()
    assert len(parts) > 6
    assert read(*parts, rest) == list(range(600))


@pytest.mark.parametrize("more", [1, -(10**9)])
def test_bytes_that_are_not_finished_cannot_be_taken(more: int) -> None:
    open_file = writer()
    open_file.add_batch_data(rows(0))
    finished = open_file.buffered_bytes
    with pytest.raises(InvalidInputError, match=f"0 to {finished} bytes"):
        open_file.split_to(finished + more)
    assert open_file.buffered_bytes == finished


def test_trailing_bytes_would_close_the_file_and_change_nothing() -> None:
    open_file = writer(kept=0)
    open_file.add_batch_data(rows(0))
    open_file.settle()
    taken = open_file.split_to(500)
    open_file.add_batch_data(rows(100))
    trailing, statistics = open_file.trailing_bytes_for_checkpoint()
    assert read(taken, trailing) == list(range(200))
    assert (statistics.row_count, statistics.columns[0].upper) == (200, 199)
    open_file.add_batch_data(rows(200))
    rest, _ = open_file.close()
    assert read(taken, rest) == list(range(300))


def test_a_file_without_rows_can_be_read() -> None:
    file, statistics = writer().close()
    assert read(file) == []
    assert statistics.row_count == 0


def test_statistics_are_those_of_all_row_groups() -> None:
    open_file = writer(group=1)
    for batch in (rows(50, 10), rows(0, 10), pa.RecordBatch.from_pylist([{"n": None}], schema=SCHEMA)):
        open_file.add_batch_data(batch)
    _, statistics = open_file.close()
    number, text = statistics.columns
    assert (number.path, number.lower, number.upper, number.null_count) == ("n", 0, 59, 1)
    assert (text.lower, text.upper, text.value_count) == (b"text 0", b"text 9", 21)
    assert len(statistics.split_offsets) == 3
    assert statistics.split_offsets[0] == 4


def test_bounds_are_found_of_values_that_python_cannot_hold() -> None:
    far = 1_700_000_000_000 * 1_000_000
    batches = [
        pa.record_batch(
            {
                "time": pa.array([time_us], pa.timestamp("us", "UTC")),
                "day": pa.array([days], pa.date32()),
                "price": pa.array([price], pa.decimal128(20, 2)),
                "unsigned": pa.array([unsigned], pa.uint64()),
            }
        )
        for time_us, days, price, unsigned in (
            (far, 20_000_000, Decimal("-1.50"), 2**64 - 1),
            (-far, -20_000_000, Decimal("0.25"), 0),
        )
    ]
    open_file = ParquetBatchBufferingWriter(batches[0].schema, row_group_bytes=1)
    for batch in batches:
        open_file.add_batch_data(batch)
    _, statistics = open_file.close()
    assert {column.path: (column.lower, column.upper) for column in statistics.columns} == {
        "time": (-far, far),
        "day": (-20_000_000, 20_000_000),
        "price": ((-150).to_bytes(9, "big", signed=True), (25).to_bytes(9, "big")),
        "unsigned": (0, -1),
    }


def test_rows_of_an_older_schema_can_still_be_finished() -> None:
    open_file = writer()
    open_file.add_batch_data(rows(0))
    other = pa.schema([("m", pa.int64())])
    file, _ = ParquetBatchBufferingWriter.resume(other, open_file.checkpoint()).close()
    assert read(file) == list(range(100))


def test_a_column_that_cannot_be_cast_is_named() -> None:
    batch = pa.record_batch({"n": ["seven"], "text": ["x"]})
    with pytest.raises(InvalidInputError, match="write to the file: a column has another type: n"):
        writer().add_batch_data(batch)


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (pa.array([1e300]), pa.float32()),
        (pa.array(["0.123456789012345678"]), pa.float64()),
        (pa.array([2]), pa.bool_()),
        (pa.array([dt.datetime(2026, 1, 1, 12, 30)]), pa.date32()),
        (pa.array([dt.datetime(2026, 1, 1, 12, 30)]), pa.time64("us")),
        (pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int64())])),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_what_a_cast_would_lose_is_refused_by_name(given: pa.Array, declared: pa.DataType) -> None:
    schema = pa.schema([("value", declared)])
    with pytest.raises(InvalidInputError) as refused:
        ParquetBatchBufferingWriter(schema).add_batch_data(pa.record_batch({"value": given}))
    assert refused.value.object_name == "value"


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InvalidInputError, match="write to the file: a column is missing: text"):
        writer().add_batch_data(pa.record_batch({"n": [1]}))


def test_a_null_where_the_schema_allows_none_is_refused_before_it_is_state() -> None:
    required = pa.field("element", pa.int64(), nullable=False)
    schema = pa.schema([("tags", pa.list_(required))])
    batch = pa.record_batch([pa.array([[1, None]], schema.field(0).type)], schema=schema)
    with pytest.raises(InvalidInputError, match=r"a required column has no value: tags\.element"):
        ParquetBatchBufferingWriter(schema).add_batch_data(batch)


def test_the_null_fields_of_a_null_struct_are_not_missed() -> None:
    point = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    structs = pa.StructArray.from_arrays(
        [pa.array([1, None])], fields=list(point), mask=pa.array([False, True])
    )
    batch = pa.record_batch([pa.array([1, 2]), structs], schema=pa.schema([("n", pa.int64()), ("p", point)]))
    open_file = ParquetBatchBufferingWriter(batch.schema)
    open_file.add_batch_data(batch)
    file, _ = ParquetBatchBufferingWriter.resume(batch.schema, open_file.checkpoint()).close()
    assert pq.read_table(pa.BufferReader(file))["p"].to_pylist() == [{"x": 1}, None]


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.struct([])], ids=str)
def test_what_the_parquet_writer_refuses_is_an_error_of_ours(kind: pa.DataType) -> None:
    batch = pa.record_batch({"n": pa.nulls(1, kind)})
    open_file = ParquetBatchBufferingWriter(batch.schema)
    open_file.add_batch_data(batch)
    with pytest.raises(InvalidInputError, match="cannot be written as Parquet"):
        open_file.close()


@pytest.mark.parametrize(
    ("compression", "codec"),
    [
        ("none", "UNCOMPRESSED"),
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("zstd", "ZSTD"),
        ("lz4_raw", "LZ4_RAW"),
    ],
)
def test_a_codec_is_the_one_that_parquet_calls_so(tmp_path: Path, compression: str, codec: str) -> None:
    file = tmp_path / "file.parquet"
    coded = ParquetBatchBufferingWriter(SCHEMA, ParquetEncoding(compression))
    coded.add_batch_data(rows(0))
    file.write_bytes(coded.close()[0])
    # pyarrow shows LZ4 and LZ4_RAW by one name.
    found = duckdb.sql(f"SELECT DISTINCT compression FROM parquet_metadata('{file}')").fetchall()
    assert found == [(codec,)]
    assert read(file.read_bytes()) == list(range(100))
