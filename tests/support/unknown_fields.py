"""Messages as a newer version would write them: with a field in every part that we do not know."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message

from lakestate.protocol.table_types import GLOBAL_KEYED, KEYED, TIME_KEY
from lakestate.v1 import tables_pb2

TYPED = {
    "TableConfig": (
        "config",
        {
            GLOBAL_KEYED.name: tables_pb2.GlobalKeyedTableConfig,
            KEYED.name: tables_pb2.KeyedTableConfig,
            TIME_KEY.name: tables_pb2.TimeKeyTableConfig,
        },
    ),
    "TableCheckpointMetadata": (
        "data",
        {
            GLOBAL_KEYED.name: tables_pb2.GlobalKeyedTableCheckpoint,
            KEYED.name: tables_pb2.KeyedTableCheckpoint,
            TIME_KEY.name: tables_pb2.TimeKeyTableCheckpoint,
        },
    ),
}


def unknown_field(number: int) -> bytes:
    """Field 1000 with a text, as a newer version would write it: tag, length, bytes."""
    text = f"unknown {number}".encode()
    return b"\xc2\x3e" + bytes([len(text)]) + text


def with_unknown_everywhere(message: Message, numbers: Iterator[int], kinds: set[str]) -> None:
    """Give every message below, and those packed into bytes, a field of its own that we do not know."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                with_unknown_everywhere(part, numbers, kinds)
    kind = type(message).__name__
    if kind in TYPED:
        name, types = TYPED[kind]
        inner = types[message.table_type]()  # type: ignore[attr-defined]
        inner.ParseFromString(getattr(message, name))
        with_unknown_everywhere(inner, numbers, kinds)
        setattr(message, name, inner.SerializeToString(deterministic=True))
    kinds.add(kind)
    message.MergeFromString(unknown_field(next(numbers)))


def extended(message: Message, data: bytes) -> tuple[bytes, set[str]]:
    message.ParseFromString(data)
    kinds: set[str] = set()
    with_unknown_everywhere(message, iter(range(1000)), kinds)
    return message.SerializeToString(deterministic=True), kinds
