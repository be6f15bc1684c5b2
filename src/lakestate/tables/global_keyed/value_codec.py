"""Typed Python keys and values as msgpack, a whole table at a time.

Checks are cheap because they run over all entries at once; only if one fails are entries tried one by
one, to name the key. Decoding is typed and cannot run code.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from numbers import Number
from typing import Any

import msgspec
import pyarrow as pa

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.tables.arrow.value_limits import too_long_error
from lakestate.tables.global_keyed.packing import TooLongError, pack_bytes, pack_plain
from lakestate.tables.global_keyed.python_types import StoredType
from lakestate.tables.global_keyed.struct_packing import StructPacking
from lakestate.tables.migration.values import MigratableState, chain_of, migrate_value

# For these types, checking the class of a value is enough, at a tenth of the cost of decoding it.
_PLAIN: dict[Any, set[type]] = {str: {str}, int: {int}, float: {float, int}, bool: {bool}, bytes: {bytes}}
# Equal floats may be stored in several forms, so they are decoded.
_PLAIN_KEYS = (str, int, bool, bytes)
# What msgspec raises for values it cannot store or that are not of the declared type.
_NOT_STORABLE = (TypeError, ValueError, ArithmeticError, RecursionError)
# A value of one of these classes equals no value of a class that is not derived from it.
_EQUAL_TO_NO_OTHER = {str, bytes, type(None)}
_NUMBERS = {bool, int, float}
# The classes whose values may equal a value of a plain class, and can be converted to it.
_EQUAL_CLASSES: dict[Any, Any] = {
    str: str,
    bytes: (bytes, memoryview),
    int: Number,
    float: Number,
    bool: Number,
}
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


class EntryCodec:
    """Encodes and decodes the entries of one table.

    >>> codec = EntryCodec("ages", StoredType.of_key(str, "ages"), StoredType.of_value(int, "ages"), 1)
    >>> [column.to_pylist() for column in codec.encode(["ada"], [36])]
    [[b'\\xa3ada'], [b'$']]
    """

    def __init__(self, table: str, key: StoredType, value: StoredType, version: int) -> None:
        self._table = table
        self._key = key
        self._value = value
        self._version = version
        order: Any = "deterministic" if key.has_sets else None
        self._encode_key: Callable[[Any], bytes] = msgspec.msgpack.Encoder(order=order).encode
        self._encode_value: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
        self._plain_keys = _PLAIN[key.declared] if key.declared in _PLAIN_KEYS else set()
        self._decode_key = _decoder(key.declared)
        self._chain = value_types(value.declared, version)
        self._structs = StructPacking.of(value.declared)
        self._decode_value = {number: _decoder(type_) for number, type_ in self._chain.items()}

    def encode(self, keys: Sequence[Any], values: Sequence[Any]) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """All keys and values, or an error that names the first key that cannot be stored."""
        try:
            return self._pack_keys(keys), self._pack_values(values, keys)
        except InvalidInputError:
            raise
        except _NOT_STORABLE as cause:
            raise self._first_refusal(keys, values) from cause

    def find_bytes(self, key: Any) -> bytes | None:
        """The bytes under which a key that equals this one is stored, if it is.

        Empty if no key that can be stored equals this one. None if that is not known without comparing it
        with all of them, as for a tuple that contains `numpy.int64(1)`.
        """
        if type(key) in self._plain_keys:
            try:
                return self._encode_key(key)
            except _NOT_STORABLE:
                return b""
        try:
            return self._encode_keys([key])[0]
        except _NOT_STORABLE:
            return self._find_equal_bytes(key)

    def _find_equal_bytes(self, key: Any) -> bytes | None:
        """As `find_bytes`, for a key of another class than is declared."""
        if type(key) in _EQUAL_TO_NO_OTHER:
            return b""
        declared = self._key.declared
        if declared not in _PLAIN:
            return None
        if not isinstance(key, _EQUAL_CLASSES[declared]):
            return b"" if type(key) in _NUMBERS else None
        try:
            plain = declared(key)
            if plain == key and hash(plain) == hash(key):
                return self._encode_keys([plain])[0]
        except _NOT_STORABLE:
            pass
        return b"" if type(key) in _NUMBERS else None

    def encode_removed_key(self, key: Any) -> bytes:
        """The bytes of a key to remove. Raises for a key that equals a stored one but has other bytes."""
        try:
            return self._encode_keys([key])[0]
        except _NOT_STORABLE as cause:
            raise InvalidInputError(
                f"table {self._table} cannot remove a key: {cause}",
                object_name=f"key {key!r:.200}",
                found=type(key).__name__,
                expected=self._key.text,
                action="give the key as it was inserted; nothing was removed",
            ) from cause

    def canonical_keys(self, keys: Sequence[bytes], shown: str) -> list[bytes]:
        """Keys of a file as they are encoded now. CorruptionError if one is not of the declared type."""
        decoded = self.decode_keys(keys, shown)
        try:
            return self._encode_canonical(decoded)
        except _NOT_STORABLE as cause:
            raise self._undecodable("key", self._key.text, shown, cause) from cause

    def decode_keys(self, keys: Sequence[bytes], shown: str) -> list[Any]:
        """The keys of a file."""
        try:
            return list(map(self._decode_key, keys))
        except UNDECODABLE as cause:
            raise self._undecodable("key", self._key.text, shown, cause) from cause

    def decode_values(
        self, values: Sequence[bytes], keys: Sequence[Any], version: int, shown: str
    ) -> list[Any]:
        """The values of a file of some state version, in the declared type."""
        self.check_version(version, shown)
        try:
            found = list(map(self._decode_value[version], values))
        except UNDECODABLE as cause:
            raise self._undecodable("value", self._value.text, shown, cause) from cause
        if version == self._version:
            return found
        return [
            migrate_value(value, version, self._value.declared, table=self._table, key=key)
            for value, key in zip(found, keys, strict=True)
        ]

    def migrate_values(
        self, values: Sequence[bytes], keys: Sequence[bytes], version: int, shown: str
    ) -> list[bytes]:
        """Stored values of another version, encoded in the declared version."""
        plain_keys = self.decode_keys(keys, shown)
        found = self.decode_values(values, plain_keys, version, shown)
        try:
            return self._encode_values(found)
        except _NOT_STORABLE as cause:
            raise self._first_refusal(plain_keys, found) from cause

    def check_version(self, version: int, shown: str) -> None:
        """Refuse a file of a version without a known type."""
        if version not in self._chain:
            newer = version > self._version
            raise IncompatibleStateError(
                f"data file of another state version of table {self._table}",
                object_name=shown,
                found=f"version {version}",
                expected=f"one of {sorted(self._chain)}",
                action="run the newer code" if newer else "declare a MigratableState with this version",
            )

    def _encode_keys(self, keys: Sequence[Any]) -> list[bytes]:
        encoded = list(map(self._encode_key, keys))
        if self._key.declared in _PLAIN_KEYS:
            _check_classes(keys, _PLAIN[self._key.declared])
            return encoded
        decoded = list(map(self._decode_key, encoded))
        # The decoded key must equal the given one. NaN does not, and neither does another class.
        if decoded != list(keys):
            raise TypeError("it would be read back as another key")
        return self._encode_canonical(decoded) if self._key.has_several_forms else encoded

    def _encode_canonical(self, keys: Sequence[Any]) -> list[bytes]:
        if self._key.has_several_forms:
            keys = [canonical_key(key) for key in keys]
        return list(map(self._encode_key, keys))

    def _pack_keys(self, keys: Sequence[Any]) -> pa.ChunkedArray:
        declared = self._key.declared
        if declared in _PLAIN_KEYS:
            _check_classes(keys, _PLAIN[declared])
            packed = pack_plain(keys, declared)
            if packed is not None:
                return packed
        return self._pack("key", self._encode_keys(keys), keys)

    def _pack_values(self, values: Sequence[Any], keys: Sequence[Any]) -> pa.ChunkedArray:
        declared = self._value.declared
        if declared in _PLAIN:
            found = _check_classes(values, _PLAIN[declared])
            packed = pack_plain(values, declared) if found == {declared} else None
            if packed is not None:
                return packed
        packed = None if self._structs is None else self._structs.pack(list(values))
        if packed is not None:
            return packed
        return self._pack("value", self._encode_values(values), keys)

    def _pack(self, role: str, items: list[bytes], keys: Sequence[Any]) -> pa.ChunkedArray:
        try:
            return pack_bytes(items)
        except TooLongError as cause:
            raise too_long_error(
                f"table {self._table} cannot store a {role}",
                f"key {keys[cause.place]!r:.200}",
                cause.size_bytes,
            ) from cause

    def _encode_values(self, values: Sequence[Any]) -> list[bytes]:
        encoded = list(map(self._encode_value, values))
        if self._value.declared in _PLAIN:
            _check_classes(values, _PLAIN[self._value.declared])
        else:
            deque(map(self._decode_value[self._version], encoded), maxlen=0)
        return encoded

    def _first_refusal(self, keys: Sequence[Any], values: Sequence[Any]) -> InvalidInputError:
        for key, value in zip(keys, values, strict=True):
            problem = _problem(self._encode_keys, key)
            if problem is not None:
                return self._refusal("key", self._key.text, key, key, problem)
            problem = _problem(self._encode_values, value)
            if problem is not None:
                return self._refusal("value", self._value.text, key, value, problem)
        raise AssertionError("what cannot be stored with others cannot be stored alone")

    def _refusal(self, role: str, expected: str, key: Any, found: Any, problem: str) -> InvalidInputError:
        return InvalidInputError(
            f"table {self._table} cannot store a {role}: {problem}",
            object_name=f"key {key!r:.200}",
            found=f"{type(found).__name__} {found!r:.200}",
            expected=expected,
            action="remove or correct the entry; nothing of this table was stored",
        )

    def _undecodable(self, role: str, expected: str, shown: str, cause: Exception) -> CorruptionError:
        return CorruptionError(
            f"a stored {role} of table {self._table} cannot be decoded",
            object_name=shown,
            found=str(cause)[:200],
            expected=expected,
            action=RESTORE_OR_GO_BACK,
        )


def value_types(declared: Any, version: int) -> dict[int, Any]:
    """The type of every state version that can be read.

    >>> value_types(int, 3)
    {3: <class 'int'>}
    """
    if isinstance(declared, type) and issubclass(declared, MigratableState):
        return chain_of(declared)
    return {version: declared}


def canonical_key(key: Any) -> Any:
    """The form in which all equal keys are stored, so that equal keys have equal bytes.

    Merging files compares bytes: without this, a key removed as 0.0 would remain as -0.0.

    >>> canonical_key((-0.0, Decimal("1.50")))
    (0.0, Decimal('1.5'))
    """
    match key:
        case float():
            return key + 0.0
        case Decimal():
            return key.normalize(_EXACT) if key else Decimal(0)
        case tuple() if hasattr(key, "_make"):
            return type(key)._make(map(canonical_key, key))
        case tuple() | frozenset():
            return type(key)(map(canonical_key, key))
        case msgspec.Struct():
            fields = {name: canonical_key(getattr(key, name)) for name in key.__struct_fields__}
            return msgspec.structs.replace(key, **fields)
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        names = [field.name for field in dataclasses.fields(key) if field.init]
        return dataclasses.replace(key, **{name: canonical_key(getattr(key, name)) for name in names})
    return key


def _decoder(declared: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(declared, strict=True).decode


def _check_classes(items: Sequence[Any], allowed: set[type]) -> set[type]:
    # Exactly these classes: True is an int in Python but is stored differently.
    found = set(map(type, items))
    if not found <= allowed:
        raise TypeError(f"it is of class {', '.join(sorted(cls.__name__ for cls in found - allowed))}")
    return found


def _problem(encode: Callable[[Sequence[Any]], object], item: Any) -> str | None:
    try:
        encode([item])
    except _NOT_STORABLE as cause:
        return str(cause)
    return None
