"""Many structs as an Arrow array of encoded values, which are known to be read back.

A value is stored only if it decodes as its declared type, but to encode and decode a million structs one
by one takes longer than everything else. If their fields are plain they are encoded in one call. Where
each begins, and that it is complete and of its type, is then read from the bytes, in columns. What is
not recognised here is not wrong: it has to be encoded and decoded to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.tables.arrow.value_limits import VALUE_BYTES_MAX

PIECE_ROWS = 1 << 13
"""Rows that are checked at a time: what is computed for them stays in the processor's cache."""
PIECE_BYTES = 1 << 18
_FIELDS_MAX = 15
"""More fields, and names longer than 31 bytes, have another form in MessagePack."""
_NAME_BYTES_MAX = 31
_WINDOW_BYTES = 8
_PADDING = 2 * _WINDOW_BYTES
"""More than is read beyond the end of a value."""

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Measure = Callable[[Bytes, Places], Places | None]
"""The sizes of the values at some places; None if they are not all of the type, or have a rare form."""


class StructPacking:
    """Encodes values of one struct type.

    >>> class Point(msgspec.Struct):
    ...     x: int
    ...     label: str
    >>> points = StructPacking.of(Point)
    >>> points.pack([Point(1, "here"), Point(2, "there")]).to_pylist()
    [b'\\x82\\xa1x\\x01\\xa5label\\xa4here', b'\\x82\\xa1x\\x02\\xa5label\\xa5there']
    >>> points.pack([Point(None, "nowhere")]) is None
    True
    """

    def __init__(self, fields: list[tuple[bytes, Measure]]) -> None:
        self._fields = fields
        """What comes before the value of each field, and how long that value is."""

    @classmethod
    def of(cls, declared: Any) -> StructPacking | None:
        """The packing of a type; None if its values must be decoded."""
        if not isinstance(declared, type) or not issubclass(declared, msgspec.Struct):
            return None
        config, fields = declared.__struct_config__, msgspec.structs.fields(declared)
        # Decoding calls `__post_init__`, which may refuse a value.
        has_own_form = config.array_like or config.tag is not None or hasattr(declared, "__post_init__")
        if has_own_form or not 0 < len(fields) <= _FIELDS_MAX:
            return None
        names = [field.encode_name.encode() for field in fields]
        if max(map(len, names)) > _NAME_BYTES_MAX or any(field.type not in _MEASURES for field in fields):
            return None
        before = [bytes([0xA0 | len(name)]) + name for name in names]
        before[0] = bytes([0x80 | len(fields)]) + before[0]
        return cls(list(zip(before, [_MEASURES[field.type] for field in fields], strict=True)))

    def pack(self, values: list[Any]) -> pa.ChunkedArray | None:
        """The values, encoded; None if not all of them are known to be read back."""
        encoded = bytearray()
        _ENCODER.encode_into(values, encoded)
        head_bytes = 1 if len(values) < 1 << 4 else 3 if len(values) < 1 << 16 else 5
        size_bytes = len(encoded) - head_bytes
        if size_bytes > VALUE_BYTES_MAX:
            return None
        encoded += bytes(_PADDING)
        data = np.frombuffer(encoded, np.uint8)[head_bytes:]
        offsets = np.append(self._find_starts(data), size_bytes)
        if len(offsets) != len(values) + 1 or offsets[0] != 0:
            return None
        pieces = range(0, len(values), PIECE_ROWS)
        if not all(self._are_complete(data, offsets[start : start + PIECE_ROWS + 1]) for start in pieces):
            return None
        content = pa.py_buffer(encoded).slice(head_bytes, size_bytes)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), content]
        return pa.chunked_array([pa.Array.from_buffers(pa.binary(), len(values), buffers, 0)])

    def _find_starts(self, data: Bytes) -> Places:
        """Where values may begin. They do if each is complete where the next one begins."""
        first, windows = self._fields[0][0][:_WINDOW_BYTES], _windows(data)
        found = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(data) - _PADDING, PIECE_BYTES):
            stop = min(start + PIECE_BYTES, len(data) - _PADDING)
            places = np.flatnonzero(data[start:stop] == first[0]) + start
            found.append(places[windows[places] & _mask(first) == _word(first)])
        return np.concatenate(found)

    def _are_complete(self, data: Bytes, offsets: Places) -> bool:
        """Whether there is exactly one struct of the type between neighbouring offsets."""
        windows = _windows(data)
        places, ends = offsets[:-1], offsets[1:]
        for before, measure in self._fields:
            if not _begin_with(windows, places, ends, before):
                return False
            places = places + len(before)
            sizes = measure(data, places)
            if sizes is None:
                return False
            places = places + sizes
        return bool(np.array_equal(places, ends))


_ENCODER = msgspec.msgpack.Encoder()


def _begin_with(windows: npt.NDArray[np.uint64], places: Places, ends: Places, expected: bytes) -> bool:
    """Whether there are these bytes at all places, and room for a value behind them."""
    if np.any(places + len(expected) >= ends):
        return False
    pieces = range(0, len(expected), _WINDOW_BYTES)
    words = ((start, expected[start : start + _WINDOW_BYTES]) for start in pieces)
    return all(np.all(windows[places + start] & _mask(word) == _word(word)) for start, word in words)


def _windows(data: Bytes) -> npt.NDArray[np.uint64]:
    """The eight bytes at each place."""
    return np.ndarray((len(data) - _WINDOW_BYTES + 1,), "<u8", data.data, strides=(1,))


def _word(data: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(data, "little"))


def _mask(data: bytes) -> np.uint64:
    return np.uint64((1 << (8 * len(data))) - 1)


def _measure_by(table: dict[int, int]) -> Measure:
    """Measures values whose first byte says their size."""
    sizes = np.zeros(256, dtype=np.int64)
    sizes[list(table)] = list(table.values())

    def measure(data: Bytes, places: Places) -> Places | None:
        found: Places = sizes[data[places]]
        return found if found.all() else None

    return measure


_SHORT_TEXT = _measure_by({0xA0 | length: 1 + length for length in range(32)} | {0xD9: 2})


def _measure_text(data: Bytes, places: Places) -> Places | None:
    sizes = _SHORT_TEXT(data, places)
    if sizes is None:
        return None
    is_longer = data[places] == 0xD9
    return sizes + is_longer * data[places + 1] if is_longer.any() else sizes


def _measure_bytes(data: Bytes, places: Places) -> Places | None:
    return 2 + data[places + 1].astype(np.int64) if np.all(data[places] == 0xC4) else None


_SMALL = dict.fromkeys((*range(0x80), *range(0xE0, 0x100)), 1)
_MEASURES: dict[Any, Measure] = {
    int: _measure_by(_SMALL | {0xCC: 2, 0xD0: 2, 0xCD: 3, 0xD1: 3, 0xCE: 5, 0xD2: 5, 0xCF: 9, 0xD3: 9}),
    float: _measure_by({0xCB: 9}),
    bool: _measure_by({0xC2: 1, 0xC3: 1}),
    str: _measure_text,
    bytes: _measure_bytes,
}
