"""Structs that are encoded and checked in columns: the same bytes, and nothing that cannot be read back."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.errors import InvalidInputError
from lakestate.tables.global_keyed import struct_packing
from lakestate.tables.global_keyed.python_types import StoredType
from lakestate.tables.global_keyed.struct_packing import StructPacking
from lakestate.tables.global_keyed.value_codec import EntryCodec


class Reading(msgspec.Struct):
    number: int
    name: str
    level: float
    is_valid: bool
    raw: bytes


class Tiny(msgspec.Struct):
    a: int


PLAIN = {
    "number": st.integers(-(2**63), 2**64 - 1),
    "name": st.text(max_size=60),
    "level": st.floats(),
    "is_valid": st.booleans(),
    "raw": st.binary(max_size=300),
}
# Text in which the bytes of a struct begin, and values of other types than are declared.
TRICKY = st.sampled_from([msgspec.msgpack.encode(Tiny(1)).decode("latin-1"), "\x81¡a", "a" * 300, ""])
WRONG = st.sampled_from([None, 1, 1.5, True, "text", b"bytes", [1], {"number": 1}])
RIGHT = st.builds(Reading, **{**PLAIN, "name": PLAIN["name"] | TRICKY})
ANY = st.builds(Reading, **{name: values | WRONG for name, values in PLAIN.items()})


def decodes(value: Any, declared: type) -> bool:
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=declared)
    except msgspec.DecodeError:
        return False
    return True


def packing_of(declared: Any) -> StructPacking:
    found = StructPacking.of(declared)
    assert found is not None
    return found


@given(st.lists(RIGHT, max_size=40))
def test_what_is_packed_is_what_each_value_is_encoded_as(values: list[Reading]) -> None:
    packed = packing_of(Reading).pack(values)
    if packed is not None:
        assert packed.to_pylist() == [msgspec.msgpack.encode(value) for value in values]
        packed.validate(full=True)


@given(st.lists(RIGHT | ANY, min_size=1, max_size=40))
def test_nothing_is_packed_that_does_not_decode(values: list[Reading]) -> None:
    packed = packing_of(Reading).pack(values)
    assert packed is None or all(decodes(value, Reading) for value in values)


@given(st.lists(st.builds(Tiny, PLAIN["number"] | WRONG), min_size=1, max_size=40))
def test_nothing_is_packed_of_the_smallest_struct_that_does_not_decode(values: list[Tiny]) -> None:
    packed = packing_of(Tiny).pack(values)
    assert packed is None or all(decodes(value, Tiny) for value in values)
    assert packed is not None or not all(type(value.a) is int for value in values)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536, 70_000])
def test_any_number_of_values_is_packed(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(struct_packing, "PIECE_BYTES", 1 << 10)
    values = [
        Reading(number * 31, f"name {number}", number / 7, number % 2 == 0, b"") for number in range(count)
    ]
    packed = packing_of(Reading).pack(values)
    expected = pa.array([msgspec.msgpack.encode(value) for value in values], pa.binary())
    assert packed is not None
    assert packed.combine_chunks().equals(pa.chunked_array([expected]).combine_chunks())


class Checked(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")


class Tagged(msgspec.Struct, tag=True):
    a: int


class Listed(msgspec.Struct, array_like=True):
    a: int


class Bounded(msgspec.Struct):
    a: Annotated[int, msgspec.Meta(ge=0)]


class Nested(msgspec.Struct):
    a: Tiny


class Named(msgspec.Struct, rename=lambda name: name * 32):
    a: int


MANY = msgspec.defstruct("MANY", [(f"field{number}", int) for number in range(16)])


@pytest.mark.parametrize(
    "declared", [Checked, Tagged, Listed, Bounded, Nested, Named, MANY, int, Tiny | None]
)
def test_types_whose_values_must_be_decoded_are_left_alone(declared: Any) -> None:
    assert StructPacking.of(declared) is None


def test_the_first_value_that_cannot_be_read_back_is_named() -> None:
    codec = EntryCodec("t", StoredType.of_key(str, "t"), StoredType.of_value(Reading, "t"), 1)
    good = Reading(1, "a", 1.0, True, b"")
    bad: Any = Reading(1, "a", 1.0, None, b"")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"cannot store a value.*key 'k1'"):
        codec.encode(["k0", "k1", "k2"], [good, bad, good])
