"""Column declarations in the syntax of Spark SQL, and the Arrow types they stand for.

`"user string, n bigint not null"` is parsed once, where a table is declared. Metadata stores its
canonical text, so that the schema in a checkpoint is readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column

INTERNAL_PREFIX = "__"
NESTING_MAX = 50
"""How deep types may nest: a stored declaration must not exhaust the stack when it is parsed."""
SHOWN_CHARS_MAX = 200

_SIMPLE: dict[str, tuple[str, pa.DataType]] = {
    "boolean": ("boolean", pa.bool_()),
    "tinyint": ("tinyint", pa.int8()),
    "byte": ("tinyint", pa.int8()),
    "smallint": ("smallint", pa.int16()),
    "short": ("smallint", pa.int16()),
    "int": ("int", pa.int32()),
    "integer": ("int", pa.int32()),
    "bigint": ("bigint", pa.int64()),
    "long": ("bigint", pa.int64()),
    "float": ("float", pa.float32()),
    "real": ("float", pa.float32()),
    "double": ("double", pa.float64()),
    "string": ("string", pa.string()),
    "binary": ("binary", pa.binary()),
    "date": ("date", pa.date32()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": ("timestamp_ntz", pa.timestamp("us")),
}
_PLAIN_NAME = r"[A-Za-z_][A-Za-z0-9_.]*|[0-9]+"
_TOKEN = re.compile(rf"\s*(`(?:[^`]|``)+`|{_PLAIN_NAME}|[<>(),:])")


def columns_of(declaration: str | pa.Schema, *, what: str) -> tuple[Column, ...]:
    """The columns of a declaration, in Spark's syntax or as an Arrow schema.

    >>> [str(column) for column in columns_of("user string, n LONG not null", what="value")]
    ['user string', 'n bigint not null']
    """
    if isinstance(declaration, pa.Schema):
        columns = tuple(
            Column(field.name, _parse_type(ddl_of(field.type), what)[0], field.nullable)
            for field in declaration
        )
    else:
        columns = _Parser(declaration, what).columns()
    _check_names(columns, what)
    return columns


def arrow_type(ddl: str) -> pa.DataType:
    """The Arrow type of a column type.

    >>> arrow_type("struct<a:int,b:array<string>>")
    StructType(struct<a: int32, b: list<element: string>>)
    """
    return _parse_type(ddl, "type")[1]


def ddl_of(type_: pa.DataType) -> str:
    """The column type of an Arrow type, in Spark's syntax.

    >>> ddl_of(pa.large_string()), ddl_of(pa.map_(pa.string(), pa.decimal128(10, 2)))
    ('string', 'map<string,decimal(10,2)>')
    """
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_map(type_):
        return f"map<{ddl_of(type_.key_type)},{ddl_of(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return (
            "struct<" + ",".join(f"{_quote_name(field.name)}:{ddl_of(field.type)}" for field in type_) + ">"
        )
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"array<{ddl_of(type_.value_type)}>"
    if pa.types.is_dictionary(type_):
        return ddl_of(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return "string"
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return "binary"
    for name, known in _SIMPLE.values():
        if known == type_:
            return name
    raise InvalidInputError(
        "a type that state tables cannot hold",
        found=str(type_),
        expected="a type of Spark SQL: integers, float, double, decimal, string, binary, boolean, "
        "date, timestamp, timestamp_ntz, array, map, struct",
    )


def arrow_fields(columns: Iterable[Column]) -> list[pa.Field]:
    """The Arrow fields of columns."""
    return [pa.field(column.name, arrow_type(column.type), column.nullable) for column in columns]


def _check_names(columns: tuple[Column, ...], what: str) -> None:
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    hidden = [name for name in names if name.startswith(INTERNAL_PREFIX)]
    if twice or hidden or not names:
        raise InvalidInputError(
            f"not usable as {what} columns",
            found=f"{', '.join(twice or hidden) or 'no column'}",
            expected=f"one or more different names, none beginning with {INTERNAL_PREFIX!r}",
        )


def _quote_name(name: str) -> str:
    """The name of a field as it is parsed: in backticks where Spark needs them."""
    return name if re.fullmatch(_PLAIN_NAME, name) else "`" + name.replace("`", "``") + "`"


def _parse_type(ddl: str, what: str) -> tuple[str, pa.DataType]:
    parser = _Parser(ddl, what)
    found = parser.type()
    parser.expect_end()
    return found


class _Parser:
    """A recursive-descent parser of Spark's column declarations. Never evaluates anything."""

    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._tokens: list[str] = []
        position = 0
        end = len(text.rstrip()) if isinstance(text, str) else 0
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(f"{text[position : position + 20]!r}")
            self._tokens.append(match[1])
            position = match.end()
        self._next = 0
        self._depth = 0

    def columns(self) -> tuple[Column, ...]:
        columns = [self._column()]
        while self._accept(","):
            columns.append(self._column())
        self.expect_end()
        return tuple(columns)

    def expect_end(self) -> None:
        if self._next < len(self._tokens):
            raise self._error(repr(self._tokens[self._next]))

    def type(self) -> tuple[str, pa.DataType]:
        if self._depth >= NESTING_MAX:
            raise self._error(f"more than {NESTING_MAX} types inside each other")
        self._depth += 1
        found = self._type()
        self._depth -= 1
        return found

    def _type(self) -> tuple[str, pa.DataType]:
        name = self._take().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in ("decimal", "numeric", "dec"):
            return self._decimal()
        if name == "array":
            self._expect("<")
            text, type_ = self.type()
            self._expect(">")
            return f"array<{text}>", pa.list_(pa.field("element", type_))
        if name == "map":
            self._expect("<")
            key_text, key = self.type()
            self._expect(",")
            item_text, item = self.type()
            self._expect(">")
            return f"map<{key_text},{item_text}>", pa.map_(key, item)
        if name == "struct":
            return self._struct()
        raise self._error(f"type {name!r}")

    def _column(self) -> Column:
        name = self._name()
        self._accept(":")
        text, _ = self.type()
        nullable = True
        if self._accept("not"):
            self._expect("null")
            nullable = False
        return Column(name, text, nullable)

    def _decimal(self) -> tuple[str, pa.DataType]:
        precision, scale = 10, 0
        if self._accept("("):
            precision = int(self._take_number())
            if self._accept(","):
                scale = int(self._take_number())
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self._error(f"decimal({precision},{scale})")
        return f"decimal({precision},{scale})", pa.decimal128(precision, scale)

    def _struct(self) -> tuple[str, pa.DataType]:
        self._expect("<")
        texts, fields = [], []
        while True:
            name = self._name()
            self._accept(":")
            text, type_ = self.type()
            texts.append(f"{_quote_name(name)}:{text}")
            fields.append(pa.field(name, type_))
            if not self._accept(","):
                break
        self._expect(">")
        return f"struct<{','.join(texts)}>", pa.struct(fields)

    def _name(self) -> str:
        token = self._take()
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _take(self) -> str:
        if self._next >= len(self._tokens):
            raise self._error("the end")
        self._next += 1
        return self._tokens[self._next - 1]

    def _take_number(self) -> str:
        token = self._take()
        # Limit the digits: Python refuses to convert thousands of them.
        if not token.isdigit() or len(token) > 9:
            raise self._error(repr(token[:20]))
        return token

    def _accept(self, token: str) -> bool:
        if self._next < len(self._tokens) and self._tokens[self._next].lower() == token:
            self._next += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            found = self._tokens[self._next] if self._next < len(self._tokens) else "the end"
            raise self._error(f"{found!r} instead of {token!r}")

    def _error(self, found: str) -> InvalidInputError:
        return InvalidInputError(
            f"not a declaration of {self._what} columns",
            object_name=f"{self._text!r:.{SHOWN_CHARS_MAX}}",
            found=found,
            expected='names and Spark SQL types, such as "user string, n bigint, tags array<string>"',
        )
