"""Byte ranges: which can be asked for, and whether the whole of one came back.

Pure, and the same for every store: where they disagree about edges, the stricter rule holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakestate.storage.store import ByteRange


def checked_spans(object_name: str, spans: Sequence[ByteRange]) -> Sequence[ByteRange]:
    """The spans themselves, if each can lie in an object. Stores disagree about empty ranges."""
    for span in spans:
        if span.start < 0 or span.length < 1:
            raise InvalidInputError(
                "not a byte range", object_name=object_name, found=span, expected="at least one byte"
            )
    return spans


def whole_span(object_name: str, span: ByteRange, data: bytes) -> bytes:
    """The data itself, if the object was long enough for the span."""
    if len(data) != span.length:
        raise beyond_end(object_name, f"{len(data)} of {span.length} bytes from {span.start}")
    return data


def beyond_end(object_name: str, found: str | None = None) -> InvalidInputError:
    """The error for a range that is not inside the object."""
    return InvalidInputError(
        "the object ends before the range",
        object_name=object_name,
        found=found,
        action="compare the recorded size with the object's",
    )
