"""Types of columns that table formats can store, for values of Arrow types. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as is_type

from lakestate.errors import InvalidInputError

DECIMAL_PRECISION_MAX = 38


def _allow_names(names: Sequence[str], path: str) -> None:
    """Allow all names of fields."""


@dataclass(frozen=True, slots=True)
class StorableTypes:
    """The types of one table format."""

    kind: str
    """What a table of the format is called."""
    plain: Callable[[pa.DataType], pa.DataType | None]
    """The type for values of a type that is not nested, or None if the format has none."""
    check_names: Callable[[Sequence[str], str], None] = _allow_names
    """Refuses names of a struct's fields, which are at a path."""

    def of(self, given: pa.DataType, path: str) -> pa.DataType:
        """The type of a column that can hold all values of a type."""
        if is_type.is_dictionary(given):
            return self.of(given.value_type, path)
        if is_type.is_struct(given):
            self.check_names([field.name for field in given], f"{path}.")
            fields = [field.with_type(self.of(field.type, f"{path}.{field.name}")) for field in given]
            return pa.struct([field.remove_metadata() for field in fields])
        if is_type.is_map(given):
            key = given.key_field.with_type(self.of(given.key_type, f"{path}.key"))
            return pa.map_(key, given.item_field.with_type(self.of(given.item_type, f"{path}.value")))
        if is_type.is_list(given) or is_type.is_large_list(given) or is_type.is_fixed_size_list(given):
            element = given.value_field.with_type(self.of(given.value_type, f"{path}.element"))
            return pa.large_list(element) if is_type.is_large_list(given) else pa.list_(element)
        plain = storable_everywhere(given) or self.plain(given)
        if plain is None:
            raise InvalidInputError(
                f"{self.kind} has no type for a column",
                object_name=path,
                found=given,
                action="cast or drop it before the sink",
            )
        return plain


def storable_everywhere(given: pa.DataType) -> pa.DataType | None:
    """The type for values of a type that all table formats store alike; None for others."""
    if is_type.is_boolean(given) or is_type.is_float32(given) or is_type.is_float64(given):
        return given
    if is_type.is_float16(given):
        return pa.float32()
    if is_type.is_decimal(given) and given.precision <= DECIMAL_PRECISION_MAX and given.scale >= 0:
        return pa.decimal128(given.precision, given.scale)
    if is_type.is_date(given):
        return pa.date32()
    if is_type.is_timestamp(given):
        return pa.timestamp("us", None if given.tz is None else "UTC")
    return None
