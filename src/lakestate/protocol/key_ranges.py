"""Which subtask owns a routing key. Pure.

The unsigned 64-bit space is divided by its upper 32 bits, so that the same arithmetic works in
Python, NumPy and Spark SQL, whose integers are signed and have no unsigned division.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakestate.errors import InvalidInputError

KEY_MAX = 2**64 - 1
PARALLELISM_MAX = 32768


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """Routing keys from `first` to `last`, both included.

    >>> KeyRange(0, 9).intersection(KeyRange(5, 20))
    KeyRange(first=5, last=9)
    >>> KeyRange(0, 4).intersection(KeyRange(5, 20)) is None
    True
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last <= KEY_MAX:
            raise InvalidInputError(
                "not a key range",
                found=f"[{self.first}, {self.last}]",
                expected=f"0 <= first <= last <= {KEY_MAX}",
            )

    def overlaps(self, other: KeyRange) -> bool:
        """True if some key is in both."""
        return self.first <= other.last and other.first <= self.last

    def intersection(self, other: KeyRange) -> KeyRange | None:
        """The keys in both, or None."""
        if not self.overlaps(other):
            return None
        return KeyRange(max(self.first, other.first), min(self.last, other.last))

    def contains(self, other: KeyRange) -> bool:
        """True if every key of `other` is in this range."""
        return self.first <= other.first and other.last <= self.last


ALL_KEYS = KeyRange(0, KEY_MAX)


def require_parallelism(parallelism: int) -> int:
    """The parallelism itself, if it is allowed."""
    if isinstance(parallelism, bool) or not 1 <= parallelism <= PARALLELISM_MAX:
        raise InvalidInputError("not a parallelism", found=parallelism, expected=f"1 to {PARALLELISM_MAX}")
    return parallelism


def key_range_of(subtask_index: int, parallelism: int) -> KeyRange:
    """The routing keys that a subtask owns.

    >>> key_range_of(0, 2)
    KeyRange(first=0, last=9223372036854775807)
    >>> key_range_of(1, 2)
    KeyRange(first=9223372036854775808, last=18446744073709551615)
    """
    require_parallelism(parallelism)
    if not 0 <= subtask_index < parallelism:
        raise InvalidInputError(
            "not a subtask index", found=subtask_index, expected=f"0 to {parallelism - 1}"
        )
    first = _first_upper_half(subtask_index, parallelism) << 32
    last = (_first_upper_half(subtask_index + 1, parallelism) << 32) - 1
    return KeyRange(first, last)


def subtask_of(routing_key: int, parallelism: int) -> int:
    """The index of the subtask that owns an unsigned routing key.

    >>> [subtask_of(key, 3) for key in (0, 2**63, 2**64 - 1)]
    [0, 1, 2]
    """
    return ((routing_key >> 32) * parallelism) >> 32


def subtask_sql(routing_key: str, parallelism: int) -> str:
    """`subtask_of` in Spark SQL, over an expression for the (signed) routing key.

    >>> subtask_sql("xxhash64(user)", 4)
    'cast(shiftright(shiftrightunsigned(xxhash64(user), 32) * 4L, 32) as int)'
    """
    # The upper half is below 2^32 and the parallelism at most 2^15: the product cannot overflow.
    require_parallelism(parallelism)
    return f"cast(shiftright(shiftrightunsigned({routing_key}, 32) * {parallelism}L, 32) as int)"


def _first_upper_half(subtask_index: int, parallelism: int) -> int:
    return -((-subtask_index << 32) // parallelism)
