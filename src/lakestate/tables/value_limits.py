"""How large a single key or value may be, checked before anything of it is stored.

Parquet counts the bytes of a page, and Arrow those of a column of text, with 31 bits; what is larger
would fail inside of them, at a checkpoint, when the rows cannot be refused any more.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError

VALUE_BYTES_MAX = (1 << 30) + 64
"""1 GiB, and what an encoding adds to it."""

LONG_BYTES = 64 << 10
"""Values from here on are stored without statistics: Parquet would keep several copies of them."""


def longest_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """The length of the longest value of a column of text or bytes; 0 of any other column.

    >>> longest_bytes(pa.array(["a", None, "abc"])), longest_bytes(pa.array([1, 2]))
    (3, 0)
    """
    if not is_text(column.type) or not len(column):
        return 0
    return pc.max(pc.binary_length(column)).as_py() or 0


def check_values(column: pa.Array, name: str, what: str) -> None:
    """Refuse a column with a value that is too long to be stored."""
    if column.nbytes > VALUE_BYTES_MAX and (longest := longest_bytes(column)) > VALUE_BYTES_MAX:
        raise too_long(f"{what}: a value is too long", name, longest)


def too_long(summary: str, name: str, found_bytes: int) -> InvalidInputError:
    """The error for a value that is too long to be stored."""
    return InvalidInputError(
        summary,
        object_name=name,
        found=f"{found_bytes:,} bytes",
        expected=f"at most {VALUE_BYTES_MAX:,}",
        action="keep large values as objects of their own, and their names here",
    )


def is_text(type_: pa.DataType) -> bool:
    """True for text and bytes, however they are counted."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_large_binary(type_)
    )
