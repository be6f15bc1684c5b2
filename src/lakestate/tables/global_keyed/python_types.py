"""Python types in the declarations of global keyed tables: which can be stored, and their text form.

Works on msgspec's description of a type. Nothing here encodes, and nothing is evaluated from text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_origin

from msgspec import inspect as described

from lakestate.errors import InvalidInputError

_SIMPLE: dict[type[described.Type], str] = {
    described.NoneType: "None",
    described.BoolType: "bool",
    described.IntType: "int",
    described.FloatType: "float",
    described.StrType: "str",
    described.BytesType: "bytes",
    described.ByteArrayType: "bytearray",
    described.DateTimeType: "datetime",
    described.TimeType: "time",
    described.DateType: "date",
    described.TimeDeltaType: "timedelta",
    described.UUIDType: "UUID",
    described.DecimalType: "Decimal",
}
_WITH_FIELDS = (
    described.StructType,
    described.DataclassType,
    described.NamedTupleType,
    described.TypedDictType,
)
_WITH_CLASS = (
    described.StructType,
    described.DataclassType,
    described.NamedTupleType,
    described.EnumType,
)
_UNTYPED = (
    described.AnyType,
    described.CustomType,
    described.RawType,
    described.ExtType,
    described.MemoryViewType,
)
_MUTABLE = (
    described.ListType,
    described.SetType,
    described.DictType,
    described.TypedDictType,
    described.ByteArrayType,
)


@dataclass(frozen=True, slots=True)
class StoredType:
    """A type that can be stored, and its text in the table's declaration.

    >>> StoredType.of_value(dict[str, int] | None, "limits").text
    'dict[str, int] | None'
    >>> from typing import NamedTuple
    >>> class Place(NamedTuple):
    ...     city: str
    ...     zip: int | None
    >>> StoredType.of_value(tuple[Place, ...], "routes").text
    'tuple[Place(city: str, zip: int | None), ...]'
    """

    declared: Any
    text: str
    """The same for the same type in every process."""
    has_several_forms: bool = False
    """Whether equal values may be encoded differently, as 0.0 and -0.0 are."""
    has_sets: bool = False

    @classmethod
    def of_value(cls, declared: Any, table: str) -> StoredType:
        """A type of values; refused if its values could not be read back."""
        return _stored_type(_describe_type(declared, "value", table), declared)

    @classmethod
    def of_key(cls, declared: Any, table: str) -> StoredType:
        """A type of keys: hashable, and equal keys have equal bytes."""
        info = _describe_type(declared, "key", table)
        for part in _parts(info):
            problem = _key_problem(part)
            if problem:
                raise InvalidInputError(
                    "not a type for keys",
                    object_name=f"table {table}",
                    found=f"{_text(part)} in {_text(info)}" if part is not info else _text(info),
                    action=problem,
                )
        return _stored_type(info, declared)


def _stored_type(info: described.Type, declared: Any) -> StoredType:
    parts = list(_parts(info))
    return StoredType(
        declared=declared,
        text=_text(info),
        has_several_forms=any(isinstance(part, _SEVERAL_FORMS) for part in parts),
        has_sets=_has_sets(info),
    )


_SEVERAL_FORMS = (described.FloatType, described.DecimalType)


def _describe_type(declared: Any, role: str, table: str) -> described.Type:
    try:
        info = described.type_info(declared)
    except (TypeError, NameError) as cause:
        raise _refusal(declared, role, table, str(cause)) from cause
    if any(isinstance(part, _UNTYPED) for part in _parts(info)):
        raise _refusal(declared, role, table, _text(info))
    return info


def _refusal(declared: Any, role: str, table: str, found: str) -> InvalidInputError:
    return InvalidInputError(
        f"not a type for {role}s: {getattr(declared, '__name__', declared)}",
        object_name=f"table {table}",
        found=found,
        expected="str, int, float, bool, bytes, None, datetime, Decimal, UUID, enums, dataclasses, "
        "msgspec structs, and tuples, lists, sets, dicts and unions of these",
        action="declare the element types, such as dict[str, int]; turn an unknown class into a dataclass",
    )


def _key_problem(info: described.Type) -> str | None:
    """What to use instead if keys cannot contain this type; None if they can."""
    if isinstance(info, _MUTABLE):
        return "keys must be hashable: use a tuple, a frozenset or a frozen dataclass"
    if isinstance(info, described.TimeType):
        # Equal times of two zones are stored differently and would not be recognised as one key.
        return "use a timedelta since midnight"
    if isinstance(info, described.FrozenSetType) and _has_sets(info.item_type):
        # Elements are stored sorted, and `<` on sets is not a total order: processes would disagree.
        return "sets have no order among each other: inside a set use tuples, such as tuple[str, ...]"
    if isinstance(info, _WITH_CLASS) and _has_own_equality(_plain_class(info.cls)):
        return "equal keys must be stored alike: compare all fields, without a method __eq__"
    if isinstance(info, described.StructType):
        config = _plain_class(info.cls).__struct_config__
        return None if config.frozen and config.eq else "declare the struct with frozen=True"
    if isinstance(info, described.DataclassType):
        return _dataclass_problem(_plain_class(info.cls))
    if isinstance(info, described.UnionType) and sum(map(_is_number, info.types)) > 1:
        return "1, 1.0 and True are one key to Python: use one type of number"
    return None


def _has_sets(info: described.Type) -> bool:
    return any(isinstance(part, described.FrozenSetType) for part in _parts(info))


def _has_own_equality(cls: Any) -> bool:
    """Whether `==` is a method that somebody wrote. Those of dataclasses are compiled from text."""
    code = getattr(cls.__eq__, "__code__", None)
    return code is not None and code.co_filename != "<string>"


def _dataclass_problem(cls: Any) -> str | None:
    if not (cls.__dataclass_params__.frozen and cls.__dataclass_params__.eq):
        return "keys must be hashable: declare the dataclass with frozen=True"
    if not all(field.compare for field in dataclasses.fields(cls)):
        return "compare all fields: equal keys must be stored alike"
    return None


def _is_number(info: described.Type) -> bool:
    if isinstance(info, described.EnumType):
        members: list[Enum] = list(info.cls)
        return any(isinstance(member.value, int) for member in members)
    if isinstance(info, described.LiteralType):
        return any(isinstance(value, int) for value in info.values)
    numbers = (described.BoolType, described.IntType, *_SEVERAL_FORMS)
    return isinstance(info, numbers)


def _parts(info: described.Type) -> Iterator[described.Type]:
    """A type and all types inside it, each class once: types may contain themselves."""
    seen: set[int] = set()
    waiting = [info]
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += _inside(part)


def _inside(info: described.Type) -> list[described.Type]:
    if isinstance(info, _WITH_FIELDS):
        return [field.type for field in info.fields]
    if isinstance(info, described.UnionType):
        return list(info.types)
    if isinstance(info, described.TupleType):
        return list(info.item_types)
    if isinstance(info, described.DictType):
        return [info.key_type, info.value_type]
    if isinstance(info, described.CollectionType):
        return [info.item_type]
    return []


def _text(info: described.Type, outer: tuple[object, ...] = ()) -> str:
    simple = _SIMPLE.get(type(info))
    if simple is not None:
        return simple
    if isinstance(info, _WITH_FIELDS):
        return _text_with_fields(info, outer)
    inside = [_text(part, outer) for part in _inside(info)]
    match info:
        case described.UnionType():
            # Python may list the members of a union in any order.
            return " | ".join(sorted(inside, key=lambda text: (text == "None", text)))
        case described.LiteralType():
            return f"Literal[{', '.join(sorted(map(repr, info.values)))}]"
        case described.VarTupleType():
            return f"tuple[{inside[0]}, ...]"
        case described.EnumType() | described.CustomType():
            # Without the members of an enum: adding one does not change stored values.
            return str(_plain_class(info.cls).__name__)
        case _:
            name = type(info).__name__.removesuffix("Type").lower()
            return f"{name}[{', '.join(inside)}]" if inside else name


def _text_with_fields(info: Any, outer: tuple[object, ...]) -> str:
    name = str(_plain_class(info.cls).__name__)
    if info.cls in outer:
        return name
    fields = [f"{field.encode_name}: {_text(field.type, (*outer, info.cls))}" for field in info.fields]
    if getattr(info, "tag", None) is not None:
        fields.insert(0, f"{info.tag_field}: {info.tag!r}")
    shown = ", ".join(fields)
    return f"{name}[{shown}]" if getattr(info, "array_like", False) else f"{name}({shown})"


def _plain_class(cls: Any) -> Any:
    """The class of `Pair[int]` is `Pair`."""
    return get_origin(cls) or cls
