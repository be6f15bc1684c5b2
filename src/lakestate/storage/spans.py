"""Byte ranges: which are valid, how they are merged, and whether all bytes arrived.

Pure, and the same for every store. Where stores disagree about edge cases, the stricter rule applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError
from lakestate.storage.store import ByteRange

if TYPE_CHECKING:
    from collections.abc import Sequence

MERGED_GAP_BYTES = 1 << 20
"""Fetching this many unwanted bytes takes less time than another request."""

MERGED_BYTES_MAX = 16 << 20
"""Neighbours that exceed this together are fetched separately, in parallel."""


class BeyondEndError(InvalidInputError):
    """A requested range is not inside the object."""


def check_spans(object_name: str, spans: Sequence[ByteRange]) -> None:
    """Raise InvalidInputError unless each span can be in an object. Stores disagree about empty ranges."""
    for span in spans:
        if span.start < 0 or span.length < 1:
            raise InvalidInputError(
                "not a byte range", object_name=object_name, found=span, expected="at least one byte"
            )


def require_whole_span(object_name: str, span: ByteRange, data: bytes) -> bytes:
    """The data itself, if the object was long enough for the span."""
    if len(data) != span.length:
        raise beyond_end_error(object_name, f"{len(data)} of {span.length} bytes from {span.start}")
    return data


def merge_spans(spans: Sequence[ByteRange]) -> list[ByteRange]:
    """Fewer spans, ordered by start, such that each given span lies inside one of them.

    >>> merge_spans([ByteRange(50, 10), ByteRange(0, 10), ByteRange(9 << 20, 1)])
    [ByteRange(start=0, length=60), ByteRange(start=9437184, length=1)]
    """
    merged: list[ByteRange] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.length)):
        last = merged[-1] if merged else ByteRange(span.start, 0)
        length = max(last.length, span.start + span.length - last.start)
        near = span.start <= last.start + last.length + MERGED_GAP_BYTES
        if merged and (length == last.length or (near and length <= MERGED_BYTES_MAX)):
            merged[-1] = ByteRange(last.start, length)
        else:
            merged.append(span)
    return merged


def cut_span(object_name: str, span: ByteRange, fetched: Sequence[tuple[ByteRange, bytes]]) -> bytes:
    """The bytes of a span out of what was fetched for `merge_spans`."""
    for place, data in fetched:
        if place.start <= span.start and span.start + span.length <= place.start + place.length:
            first = span.start - place.start
            # Slicing all of a bytes object returns the object itself: no copy.
            return require_whole_span(object_name, span, data[first : first + span.length])
    raise AssertionError(f"{span} is in none of the merged spans")


def beyond_end_error(object_name: str, found: str | None = None) -> BeyondEndError:
    """The error for a range that is not inside the object."""
    return BeyondEndError(
        "the object ends before the range",
        object_name=object_name,
        found=found,
        action="compare the recorded size with the object's",
    )
