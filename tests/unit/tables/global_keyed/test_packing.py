"""Items that are encoded together are encoded as one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.tables.global_keyed import packing
from lakestate.tables.global_keyed.packing import TooLongError, pack_bytes, pack_plain

EDGES = [
    edge + near
    for bits in (0, 5, 7, 8, 15, 16, 31, 32, 63)
    for edge in (2**bits, -(2**bits))
    for near in (-1, 0, 1)
    if -(2**63) <= edge + near < 2**63
]


@pytest.fixture(autouse=True, params=["no-cache"])
def host(request: pytest.FixtureRequest) -> str:
    """Packing knows no cache: once is enough."""
    return str(request.param)


def one_by_one(items: list[Any]) -> list[bytes]:
    return [msgspec.msgpack.encode(item) for item in items]


def packed(items: list[Any], class_: type) -> list[bytes]:
    column = pack_plain(items, class_)
    assert column is not None
    column.validate(full=True)
    found: list[bytes] = column.to_pylist()
    return found


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from(EDGES)))
def test_numbers(items: list[int]) -> None:
    assert packed(items, int) == one_by_one(items)


def test_all_sizes_of_numbers() -> None:
    assert packed(EDGES, int) == one_by_one(EDGES)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_all_sizes_of_text_bytes_and_lists(length: int) -> None:
    assert packed(["x" * length, "ü"], str) == one_by_one(["x" * length, "ü"])
    assert packed([b"x" * length, b"y"], bytes) == one_by_one([b"x" * length, b"y"])
    assert packed([True] * length, bool) == one_by_one([True] * length)
    assert packed([0.5] * length, float) == one_by_one([0.5] * length)


@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=40)))
def test_ascii(items: list[str]) -> None:
    assert packed(items, str) == one_by_one(items)


@pytest.mark.parametrize("length", [0, 31, 32, 127, 128, 255, 256, 257, 32_767, 32_768, 65_536])
@pytest.mark.parametrize("count", [1, 15, 16, 65_536])
def test_any_number_of_ascii_texts_of_any_size(length: int, count: int) -> None:
    items = ["x" * length, *("y" * (place % 7) for place in range(count - 1))]
    assert packed(items, str) == one_by_one(items)


@given(st.lists(st.text()))
def test_text(items: list[str]) -> None:
    assert packed(items, str) == one_by_one(items)


def test_numbers_beyond_64_bits_with_a_sign_are_encoded_one_by_one() -> None:
    assert pack_plain([1, 2**64 - 1], int) is None


def test_other_classes_are_encoded_one_by_one() -> None:
    assert pack_plain([(1,)], tuple) is None


def test_more_bytes_than_a_chunk_can_hold_are_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "VALUE_BYTES_MAX", 10)
    items = [b"a" * 4, None, b"b" * 6, b"c", b"d" * 9, b"e" * 10, None]
    column = pack_bytes(items)
    assert column.to_pylist() == items
    assert [len(chunk) for chunk in column.chunks] == [3, 2, 2]
    assert pack_plain(["a" * 11], str) is None


def test_an_item_that_is_too_long_is_named_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "VALUE_BYTES_MAX", 10)
    with pytest.raises(TooLongError) as caught:
        pack_bytes([b"a", b"b" * 11])
    assert (caught.value.place, caught.value.size_bytes) == (1, 11)
