"""`OrderBy`: the order of rows as users write it, `"price desc, ts nulls first"`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.operators.selection.codes import Codes, is_sortable, order_codes

_DIRECTION = re.compile(
    r"^(?P<expression>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?$",
    re.IGNORECASE | re.DOTALL,
)
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "'\"`"


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One expression of an order. Nulls come last unless told otherwise, also in a descending order."""

    expression: str
    descending: bool = False
    nulls_first: bool = False

    def codes(self, rows: pa.Table) -> list[Codes]:
        """Integers that sort like the column that this expression names."""
        column = rows[self.expression]
        return order_codes(column, descending=self.descending, nulls_first=self.nulls_first)

    @property
    def sql(self) -> str:
        """The expression, its direction, and where nulls come, as SQL."""
        direction = "DESC" if self.descending else "ASC"
        return f"{self.expression} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"

    def over(self, column: str) -> OrderBy:
        """The same order by another expression."""
        return replace(self, expression=column)


def parse_order(text: str, where: str) -> tuple[OrderBy, ...]:
    """The expressions of an order, the most significant one first.

    >>> [each.sql for each in parse_order("price desc, coalesce(ts, now()) nulls first", "top best")]
    ['price DESC NULLS LAST', 'coalesce(ts, now()) ASC NULLS FIRST']
    """
    parts = [part.strip() for part in _split_at_commas(text)] if isinstance(text, str) else []
    if not parts or not all(parts):
        raise InvalidInputError(
            "not an order of rows", object_name=where, found=repr(text), expected='"price desc, ts"'
        )
    return tuple(_parse_part(part) for part in parts)


def order_rows(rows: pa.Table, order: Sequence[OrderBy]) -> list[Codes]:
    """Integers that sort like all expressions of an order."""
    return [codes for each in order for codes in each.codes(rows)]


def check_sortable(order: Sequence[OrderBy], schema: pa.Schema, where: str) -> None:
    """Refuse an order by columns that are not there, or have no order."""
    for each in order:
        place = schema.get_field_index(each.expression)
        if place < 0 or not is_sortable(schema.field(place).type):
            raise InvalidInputError(
                "rows cannot be ordered by this",
                object_name=f"{each.expression} of {where}",
                found="no such column" if place < 0 else str(schema.field(place).type),
                expected="a column that has an order",
                action=f"name one of {', '.join(schema.names)}" if place < 0 else "name a field of it",
            )


def _parse_part(part: str) -> OrderBy:
    match = _DIRECTION.match(part)
    assert match is not None, "any text matches"
    direction, nulls = match["direction"] or "asc", match["nulls"] or "last"
    return OrderBy(match["expression"].strip(), direction.lower() == "desc", nulls.lower() == "first")


def _split_at_commas(text: str) -> Iterator[str]:
    """The parts between commas that are in no parentheses and no quotes."""
    depth, quote, start = 0, "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]
