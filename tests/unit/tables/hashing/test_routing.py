"""Routing keys without a JVM: values taken from Spark 4.3, and the C library as the reference."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import subtask_of
from lakestate.tables.hashing import routing, xxh64
from lakestate.tables.hashing.routing import routing_keys, subtasks_of

LONGER = "a longer string, with more than one stripe of 32 bytes and a tail"
NOON = datetime.datetime(2026, 2, 28, 12, 30, 15, 123_456, tzinfo=datetime.UTC)
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])

# What `select xxhash64(…)` answered in Spark 4.3.0.
FROM_SPARK = [
    (True, pa.bool_(), 11748118483920312617),
    (False, pa.bool_(), 3614696996920510707),
    (-7, pa.int8(), 4987848727247274714),
    (300, pa.int16(), 4595878464234128934),
    (0, pa.int32(), 3614696996920510707),
    (-1, pa.int32(), 2017008487422258757),
    (2147483647, pa.int32(), 1508894993788531228),
    (0, pa.int64(), 13194218611613725804),
    (-1, pa.int64(), 3858142552250413010),
    (9223372036854775807, pa.int64(), 15200148018071253766),
    (1.5, pa.float32(), 6163473420726370430),
    (-0.0, pa.float32(), 3614696996920510707),
    (float("nan"), pa.float32(), 2692338816207849720),
    (1.5, pa.float64(), 7738255526519901366),
    (-0.0, pa.float64(), 13194218611613725804),
    (float("nan"), pa.float64(), 15318800012184600370),
    (float("-inf"), pa.float64(), 5326262080505358431),
    (Decimal("12345.67"), pa.decimal128(9, 2), 18016024101926192253),
    (Decimal("12345.67"), pa.decimal32(9, 2), 18016024101926192253),
    (Decimal("12345.67"), pa.decimal64(9, 2), 18016024101926192253),
    (Decimal(-1), pa.decimal128(18, 0), 3858142552250413010),
    (Decimal(-1), pa.decimal128(19, 0), 14440711548252107680),
    (Decimal(128), pa.decimal128(38, 0), 6715097930120473301),
    (Decimal("-12345678901234567890123456789.012345679"), pa.decimal128(38, 9), 18176946828553673578),
    ("", pa.string(), 11002672306508523268),
    ("a", pa.string(), 9864288744972464332),
    ("spark", pa.large_string(), 16485812939041303506),
    ("12345678", pa.string_view(), 6863040065134489090),
    ("a string of 32 bytes, exactly 32", pa.string(), 4482137185508141047),
    (LONGER, pa.string(), 10084473567097847479),
    (LONGER, pa.string_view(), 10084473567097847479),
    ("ключ", pa.string(), 7028797273662724703),
    (b"\x00\xff\x10", pa.binary(), 5415089035989094387),
    (b"\x00\xff\x10", pa.large_binary(), 5415089035989094387),
    (b"\x00\xff\x10", pa.binary_view(), 5415089035989094387),
    (b"\x00\xff\x10", pa.binary(3), 5415089035989094387),
    (datetime.date(1969, 12, 31), pa.date32(), 2017008487422258757),
    (NOON, pa.timestamp("us", "UTC"), 13624388291132595463),
    (NOON, pa.timestamp("us", "Asia/Tokyo"), 13624388291132595463),
    (NOON, pa.timestamp("ns", "UTC"), 13624388291132595463),
    (datetime.datetime(1, 1, 1), pa.timestamp("us"), 4148024589635468106),
    (datetime.datetime(1, 1, 1), pa.timestamp("s"), 4148024589635468106),
    (datetime.timedelta(days=1), pa.duration("us"), 5650310968337874586),
    (datetime.timedelta(days=1), pa.duration("ms"), 5650310968337874586),
    (None, pa.null(), 42),
    (None, pa.string(), 42),
    (None, PAIR, 42),
    ([1, None, 3], pa.list_(pa.int64()), 7452347529957652509),
    ([1, None, 3], pa.large_list(pa.int64()), 7452347529957652509),
    ([1, None, 3], pa.list_(pa.int64(), 3), 7452347529957652509),
    ({"a": 1, "b": "x"}, PAIR, 6158280145716684778),
    ("spark", pa.dictionary(pa.int32(), pa.string()), 16485812939041303506),
]


@pytest.fixture(
    scope="module", params=[-1, routing.FEW_VALUES], ids=["by columns", "few by few"], autouse=True
)
def _few_values(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to hash bytes, whatever the number of values in a test is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "FEW_VALUES", request.param)
        yield


def reference(value: bytes, seed: int = 42) -> int:
    return xxhash.xxh64_intdigest(value, seed)


@pytest.mark.parametrize(("value", "data_type", "expected"), FROM_SPARK)
def test_one_value_hashes_as_in_spark(value: object, data_type: pa.DataType, expected: int) -> None:
    assert routing_keys([pa.array([value], data_type)]).tolist() == [expected]


@pytest.mark.parametrize(("value", "data_type", "expected"), FROM_SPARK)
def test_the_neighbours_of_a_slice_do_not_matter(
    value: object, data_type: pa.DataType, expected: int
) -> None:
    column = pa.array([value, None, value, None, value], data_type).slice(1, 3)
    assert routing_keys([column]).tolist() == [42, expected, 42]


@pytest.mark.parametrize("data_type", dict.fromkeys(data_type for _, data_type, _ in FROM_SPARK))
def test_no_rows_give_no_keys(data_type: pa.DataType) -> None:
    keys = routing_keys([pa.array([], data_type)])
    assert (keys.tolist(), keys.dtype) == ([], np.uint64)


def test_several_columns_hash_as_in_spark() -> None:
    columns = [pa.nulls(1), pa.array(["a"]), pa.array([7])]
    assert routing_keys(columns).tolist() == [6906419324712428799]


@pytest.mark.parametrize("seeded", ["one seed", "a seed per row"])
def test_strings_of_every_length_hash_as_in_the_reference(seeded: str) -> None:
    lengths = [*range(200), 1022, 1023, 1024, 1025, 3000]
    values = [bytes((7 * length + position) % 256 for position in range(length)) for length in lengths]
    numbers = pa.array(lengths, pa.int64())
    before = [numbers] if seeded == "a seed per row" else []
    seeds = [reference(struct.pack("<q", length)) if before else 42 for length in lengths]
    keys = routing_keys([*before, pa.array(values, pa.binary())])
    assert keys.tolist() == [reference(value, seed) for value, seed in zip(values, seeds, strict=True)]


@given(st.lists(st.none() | st.binary(max_size=80)), st.lists(st.binary(max_size=5)))
def test_any_strings_hash_as_in_the_reference(values: list[bytes | None], cut_off: list[bytes]) -> None:
    column = pa.array([*cut_off, *values, *cut_off], pa.binary()).slice(len(cut_off), len(values))
    expected = [42 if value is None else reference(value) for value in values]
    assert routing_keys([column]).tolist() == expected


@given(st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=40))))
def test_a_chain_of_columns_uses_each_hash_as_the_next_seed(
    rows: list[tuple[int | None, str | None]],
) -> None:
    numbers = pa.array([number for number, _ in rows], pa.int64())
    texts = pa.array([text for _, text in rows], pa.string())
    expected = []
    for number, text in rows:
        key = 42 if number is None else reference(struct.pack("<q", number))
        expected.append(key if text is None else reference(text.encode(), key))
    assert routing_keys([numbers, texts]).tolist() == expected
    assert routing_keys([pa.StructArray.from_arrays([numbers, texts], ["n", "t"])]).tolist() == expected
    assert routing_keys([numbers, texts.dictionary_encode()]).tolist() == expected


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1))
def test_wide_decimals_hash_their_shortest_big_endian_form(numbers: list[int]) -> None:
    column = pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))
    shortest = [
        number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
        for number in numbers
    ]
    assert routing_keys([column]).tolist() == [reference(value) for value in shortest]


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=10), max_size=5)))
def test_lists_chain_over_their_elements(rows: list[list[str | None] | None]) -> None:
    expected = []
    for row in rows:
        key = 42
        for element in row or []:
            key = key if element is None else reference(element.encode(), key)
        expected.append(key)
    assert routing_keys([pa.array(rows, pa.list_(pa.string()))]).tolist() == expected


@pytest.mark.parametrize("count", [xxh64.BLOCK_ROWS - 1, xxh64.BLOCK_ROWS, 2 * xxh64.BLOCK_ROWS + 1])
def test_a_column_of_several_blocks_hashes_like_its_rows(count: int) -> None:
    numbers = pa.array(np.arange(count), pa.int32())
    texts = pa.array([f"{number:0{number % 45}d}" for number in range(count)])
    expected = [
        reference(text.encode(), reference(struct.pack("<i", number)))
        for number, text in enumerate(texts.to_pylist())
    ]
    assert routing_keys([numbers, texts]).tolist() == expected


def test_every_nan_is_the_same_key_and_so_are_both_zeros() -> None:
    odd_nans = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], dtype=np.uint64)
    nan, zero = routing_keys([pa.array([float("nan"), 0.0])]).tolist()
    assert routing_keys([pa.array(odd_nans.view(np.float64), from_pandas=False)]).tolist() == [nan] * 3
    assert routing_keys([pa.array([-0.0])]).tolist() == [zero]


def test_chunks_hash_like_one_array_even_if_columns_are_cut_differently() -> None:
    numbers, texts = pa.array(range(10)), pa.array([f"text {number}" for number in range(10)])
    cut_numbers = pa.chunked_array([numbers[:3], numbers[3:3], numbers[3:]])
    cut_texts = pa.chunked_array([texts[:7], texts[7:]])
    assert routing_keys([cut_numbers, cut_texts]).tolist() == routing_keys([numbers, texts]).tolist()
    assert routing_keys([pa.chunked_array([], pa.int64())]).tolist() == []


def test_a_dictionary_may_be_larger_than_the_column_hold_nulls_or_be_empty() -> None:
    values = pa.array(["a", None, "b", "unused", "unused too"])
    columns = [
        pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1], pa.int8()), values),
        pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1] * 5, pa.int8()), values).slice(8, 4),
    ]
    expected = [reference(b"b"), reference(b"a"), 42, 42]
    assert [routing_keys([column]).tolist() for column in columns] == [expected, expected]
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert routing_keys([empty]).tolist() == [42, 42]


def test_a_null_slot_may_hold_anything() -> None:
    offsets, validity = pa.py_buffer(struct.pack("<4i", 0, 1, 3, 4)), pa.py_buffer(b"\x05")
    column = pa.Array.from_buffers(pa.string(), 3, [validity, offsets, pa.py_buffer(b"a??b")])
    assert routing_keys([column]).tolist() == [reference(b"a"), 42, reference(b"b")]


@pytest.mark.parametrize(
    "data_type",
    [
        pa.uint8(),
        pa.uint64(),
        pa.float16(),
        pa.decimal256(50, 0),
        pa.date64(),
        pa.time64("us"),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.struct([("count", pa.uint32())]),
        pa.dictionary(pa.int8(), pa.uint64()),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_type_that_spark_cannot_hash_is_refused_by_name(data_type: pa.DataType, rows: int) -> None:
    with pytest.raises(InvalidInputError, match="cannot be a key"):
        routing_keys([pa.nulls(rows, data_type)])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62], pa.timestamp("s")),
        pa.array([1], pa.timestamp("ns")),
        pa.array([1], pa.duration("ns")),
    ],
    ids=["too large", "too fine", "interval too fine"],
)
def test_a_time_that_spark_cannot_hold_is_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidInputError, match="microseconds"):
        routing_keys([column])


def test_keys_need_columns_of_one_length() -> None:
    with pytest.raises(InvalidInputError, match="at least one column"):
        routing_keys([])
    with pytest.raises(InvalidInputError, match="differ in length"):
        routing_keys([pa.array([1]), pa.array([1, 2])])


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 32768))
def test_subtasks_of_many_keys_are_those_of_each(keys: list[int], parallelism: int) -> None:
    expected = [subtask_of(key, parallelism) for key in keys]
    assert subtasks_of(np.array(keys, dtype=np.uint64), parallelism).tolist() == expected


def test_a_parallelism_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not a parallelism"):
        subtasks_of(np.zeros(1, dtype=np.uint64), 32769)
