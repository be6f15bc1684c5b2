"""The file formats that are known by name: those of the package, and those that users register."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from lakestate.errors import InvalidInputError
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.json_lines.format import JsonLinesFormat
from lakestate.sinks.formats.parquet.format import ParquetFormat

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")

Format = TypeVar("Format", bound=FileFormat)

_BUILT_IN: tuple[type[FileFormat], ...] = (ParquetFormat, JsonLinesFormat)
_formats: dict[str, type[FileFormat]] = {each.name: each for each in _BUILT_IN}


def register_file_format(format_class: type[Format]) -> type[Format]:
    """Make a file format known by its name, to `FileSink` and to the Spark data source.

    A class can be registered again, as happens when a notebook cell is run twice; the name of another
    format is refused. Returns the class, so that this is also a decorator.

    >>> import lakestate as ls
    >>> @ls.register_file_format
    ... class Broken(ls.FileFormat):
    ...     name = "parquet"
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: a file format of this name exists: parquet; ...
    """
    name = getattr(format_class, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(
            "not the name of a file format",
            object_name=format_class.__qualname__,
            found=repr(name),
            expected="up to 32 lower-case letters, digits and underscores; a letter first",
        )
    known = _formats.get(name)
    if known is not None and _identity(known) != _identity(format_class):
        raise InvalidInputError(
            "a file format of this name exists",
            object_name=name,
            found=".".join(_identity(known)),
            action="choose another name",
        )
    _formats[name] = format_class
    return format_class


def file_formats() -> Mapping[str, type[FileFormat]]:
    """The known formats by name."""
    return MappingProxyType(_formats)


def registered_formats() -> tuple[type[FileFormat], ...]:
    """The formats that users registered. Other processes know them only if they are sent along."""
    return tuple(each for each in _formats.values() if each not in _BUILT_IN)


def require_file_format(name: str) -> type[FileFormat]:
    """The format of a name. Raises InvalidInputError."""
    if name not in _formats:
        raise InvalidInputError(
            "unknown file format",
            found=repr(name),
            expected=", ".join(_formats),
            action="register it with lakestate.register_file_format",
        )
    return _formats[name]


def resolve_file_format(given: FileFormat | str) -> FileFormat:
    """The format that a user names, with its default settings, or gives.

    >>> resolve_file_format("json").extension
    'json'
    """
    return require_file_format(given)() if isinstance(given, str) else given


def _identity(format_class: type[FileFormat]) -> tuple[str, str]:
    return format_class.__module__, format_class.__qualname__
