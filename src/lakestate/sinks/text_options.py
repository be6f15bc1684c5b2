"""Settings that can also be given as text: the name of each as an option, and how its text is read.

A setting is declared once, as a field of a frozen dataclass. Code that is configured by text,
such as the Spark data source, reads names and parsers from there and keeps no list of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError

_OPTION = "lakestate.option"
_NONE = "none"


@dataclass(frozen=True, slots=True)
class TextOption:
    """One setting as text."""

    name: str
    """In camel case; it is matched in any case."""
    field: str
    parse: Callable[[str], Any]


def option(name: str, parse: Callable[[str], Any] = str) -> dict[str, Any]:
    """The metadata of a dataclass field that is also an option.

    >>> from dataclasses import field
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     part_bytes: int | str = field(default="8 MiB", metadata=option("partSize", parse_size))
    >>> [(each.name, each.field) for each in declared_options(Settings)]
    [('partSize', 'part_bytes')]
    """
    return {_OPTION: (name, parse)}


def declared_options(settings: type) -> list[TextOption]:
    """The options that the fields of a dataclass declare with `option`."""
    found = [(each.name, each.metadata[_OPTION]) for each in fields(settings) if _OPTION in each.metadata]
    return [TextOption(name, field_name, parse) for field_name, (name, parse) in found]


def inferred_options(settings: type) -> list[TextOption]:
    """The declared options, and one in camel case for each other field that is text, a number or a flag.

    >>> @dataclass(frozen=True)
    ... class Csv:
    ...     line_end: str = ";"
    ...     quote_all: bool = False
    >>> [(each.name, each.parse("true")) for each in inferred_options(Csv)]
    [('lineEnd', 'true'), ('quoteAll', True)]
    """
    if not is_dataclass(settings):
        return []
    declared = declared_options(settings)
    known = {each.field for each in declared}
    return declared + [
        TextOption(_camel_case(each.name), each.name, parse)
        for each in fields(settings)
        if each.init and each.name not in known and (parse := _inferred_parser(each)) is not None
    ]


def parse_number(text: str) -> int:
    """A whole number.

    >>> parse_number("4")
    4
    """
    if not text.strip().isdigit():
        raise InvalidInputError("not a number", found=repr(text), expected="a whole number, 0 or more")
    return int(text)


def parse_size(text: str) -> int | str:
    """A number of bytes, with or without a unit. The unit is checked where the size is used.

    >>> parse_size("4096"), parse_size("8 MiB")
    (4096, '8 MiB')
    """
    return int(text) if text.strip().isdigit() else text


def parse_flag(text: str) -> bool:
    """True or false.

    >>> parse_flag("True")
    True
    """
    if text.lower() not in ("true", "false"):
        raise InvalidInputError("not a truth value", found=repr(text), expected="true or false")
    return text.lower() == "true"


def parse_optional_duration(text: str) -> str | None:
    """A duration, or None for "none".

    >>> parse_optional_duration("5 minutes"), parse_optional_duration("none")
    ('5 minutes', None)
    """
    if text.lower() == _NONE:
        return None
    duration_us(text)
    return text


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _inferred_parser(each: Field[Any]) -> Callable[[str], Any] | None:
    if each.default is MISSING:
        return None
    match each.default:
        case bool():
            return parse_flag
        case int():
            return parse_number
        case str():
            return str
        case _:
            return None
