"""Thrift structures of the compact protocol as trees that can be changed and written again.

Parquet's footers and page headers are such. A mutation keeps them well-formed: what is wrong is what
they say.
"""

from __future__ import annotations

import random
from typing import Any

from tests.support.fuzzing.hostile_bytes import NUMBERS, TEXTS, varint
from tests.support.fuzzing.thrift_compact import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    TRUE,
    CompactReader,
)

Node = list[Any]
"""Type and value; of a struct its fields as [number, node], of a list its element type and nodes."""


class TypedReader(CompactReader):
    """Reads structures as nodes, which remember their types."""

    def node(self, kind: int) -> Node:
        if kind == STRUCT:
            return [STRUCT, self.fields()]
        if kind in (LIST, SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            inside = head & 0x0F
            one = BYTE if inside in (TRUE, FALSE) else inside
            return [kind, [inside, [self.node(one) for _ in range(count)]]]
        return [kind, self._value(kind)]

    def fields(self) -> list[list[Any]]:
        found: list[list[Any]] = []
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found.append([number, self.node(head & 0x0F)])
        return found


def written(node: Node) -> bytes:
    """The bytes of a node."""
    kind, value = node
    if kind == STRUCT:
        out, last = bytearray(), 0
        for number, child in sorted(value, key=lambda field: field[0]):
            step = number - last
            head = child[0]
            out += bytes([step << 4 | head]) if 0 < step < 16 else bytes([head]) + _zigzag(number)
            out += b"" if head in (TRUE, FALSE) else written(child)
            last = number
        return bytes(out + b"\x00")
    if kind in (LIST, SET):
        inside, children = value
        count = len(children)
        head = bytes([count << 4 | inside]) if count < 15 else bytes([0xF0 | inside]) + varint(count)
        return head + b"".join(map(written, children))
    if kind in (I16, I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind == BYTE:
        return bytes([value & 0xFF])
    assert kind in (DOUBLE, TRUE, FALSE), f"type {kind}"
    return b"" if kind != DOUBLE else b"\x00" * 8


def _zigzag(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def changed(node: Node, choose: random.Random) -> Node:
    """A node with one part of it changed, lost or doubled."""
    kind, value = node
    if kind == STRUCT and value:
        place = choose.randrange(len(value))
        if choose.random() < 0.1:
            return [kind, value[:place] + value[place + 1 :]]
        copy = [list(field) for field in value]
        copy[place][1] = changed(copy[place][1], choose)
        return [kind, copy]
    if kind in (LIST, SET) and value[1]:
        inside, children = value
        place = choose.randrange(len(children))
        what = choose.random()
        if what < 0.1:
            return [kind, [inside, children[:place] + children[place + 1 :]]]
        if what < 0.25:
            return [kind, [inside, children + [children[place]] * choose.choice([1, 3, 1000])]]
        return [kind, [inside, [*children[:place], changed(children[place], choose), *children[place + 1 :]]]]
    if kind in (I16, I32, I64):
        bits = {I16: 16, I32: 32, I64: 64}[kind]
        number = choose.choice([*NUMBERS, value + 1, value - 1, value * 2, value * 1000])
        return [kind, (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)]
    if kind == BINARY:
        return [kind, choose.choice([b"", b"\xff\xfe", value * 2, value[:-1], choose.choice(TEXTS).encode()])]
    if kind in (TRUE, FALSE):
        return [TRUE + FALSE - kind, value]
    return node


def with_changed_footer(data: bytes, choose: random.Random) -> bytes:
    """A Parquet file whose footer says something else."""
    length = int.from_bytes(data[-8:-4], "little")
    footer: Node = [STRUCT, TypedReader(data[-8 - length : -8]).fields()]
    for _ in range(choose.randint(1, 3)):
        footer = changed(footer, choose)
    content = written(footer)
    return data[: -8 - length] + content + len(content).to_bytes(4, "little") + b"PAR1"


def with_changed_page_header(data: bytes, page_starts: list[int], choose: random.Random) -> bytes:
    """A Parquet file with one page whose header says something else; its length stays."""
    start = choose.choice(page_starts)
    reader = TypedReader(data, start)
    header: Node = [STRUCT, reader.fields()]
    content = written(changed(header, choose))
    if len(content) > reader.position - start:
        # What does not fit in place takes the beginning of the page with it.
        return data[:start] + content + data[start + len(content) :]
    return data[:start] + content + data[reader.position :] + b""
