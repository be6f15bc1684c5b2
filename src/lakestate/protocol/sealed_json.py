"""Small JSON objects that carry their own checksum. Pure.

Reading is strict: the bytes must be exactly what `seal` writes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from lakestate.errors import CorruptionError

RECORD_BYTES_MAX = 64 * 1024


def seal(body: Mapping[str, object]) -> bytes:
    """A body as canonical JSON on one line, with a checksum at its end."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=True)
    return f'{text[:-1]},"crc32":"{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def unseal(data: bytes, object_name: str, remedy: str | None = None) -> dict[str, Any]:
    """The body of bytes that `seal` wrote.

    Raises CorruptionError, naming the object and what to do about it, for any other bytes.
    """
    if len(data) > RECORD_BYTES_MAX:
        raise CorruptionError(
            "record is too large",
            object_name=object_name,
            found=f"{len(data)} bytes",
            expected=f"at most {RECORD_BYTES_MAX}",
            action=remedy,
        )
    try:
        body = _json_object(data)
        has_checksum = isinstance(body.pop("crc32", None), str)
        is_intact = seal(body) == data
    except (ValueError, RecursionError) as cause:
        raise CorruptionError(
            "record cannot be decoded", object_name=object_name, found=_beginning(data), action=remedy
        ) from cause
    if not has_checksum:
        raise CorruptionError(
            "record carries no checksum",
            object_name=object_name,
            found=_beginning(data),
            expected="a JSON object that ends with its crc32",
            action=remedy,
        )
    if not is_intact:
        raise CorruptionError(
            "record does not match its checksum",
            object_name=object_name,
            found=f"{len(data)} bytes that were changed after they were written",
            action=remedy,
        )
    return body


def _json_object(data: bytes) -> dict[str, Any]:
    body = json.loads(data)
    if not isinstance(body, dict):
        raise ValueError("not a JSON object")
    return body


def _beginning(data: bytes) -> str:
    return f"{len(data)} bytes: {data[:40]!r}"
