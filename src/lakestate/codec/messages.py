"""The rules for decoding every Protobuf message: strict about damage, tolerant of unknown fields.

Bytes that do not decode, or decode to impossible values, raise a CorruptionError that names the
object. Fields that this version does not know are kept with the value they were found in and written
back with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from lakestate.errors import RESTORE_OR_GO_BACK, CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import FORMAT_MAJOR, FormatVersion
from lakestate.v1 import checkpoint_pb2, files_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")

OBJECT_BYTES_MAX = 1 << 30

UnknownFields = Callable[[Message], bytes]
"""Returns the encoded fields of a message that this version does not know."""

# Values of these messages have no place for unknown fields; the enclosing value keeps them.
_KEPT_BY_HOLDER = frozenset(
    kind.DESCRIPTOR.full_name
    for kind in (
        files_pb2.FormatVersion,
        files_pb2.KeyRange,
        files_pb2.ObjectRef,
        files_pb2.TimeRange,
        checkpoint_pb2.StateSummary,
    )
)


def parse(message: M, data: bytes, object_name: str, what: str) -> M:
    """The message filled from bytes, or CorruptionError naming the object."""
    if len(data) > OBJECT_BYTES_MAX:
        raise CorruptionError(
            f"{what} is too large",
            object_name=object_name,
            found=f"{len(data)} bytes",
            expected="at most 1 GiB",
        )
    try:
        message.ParseFromString(data)
    except DecodeError as cause:
        raise CorruptionError(
            f"{what} is not valid Protobuf",
            object_name=object_name,
            found=f"{len(data)} bytes that do not decode",
            action=RESTORE_OR_GO_BACK,
        ) from cause
    return message


def convert(decode: Callable[[M], T], message: M, object_name: str, what: str) -> T:
    """The message as a frozen value, or CorruptionError if its content is impossible."""
    try:
        return decode(message)
    except (InvalidInputError, ValueError) as cause:
        raise CorruptionError(
            f"{what} holds an impossible value", object_name=object_name, found=str(cause)[:300]
        ) from cause


def require_format(version: files_pb2.FormatVersion, kind: str, object_name: str) -> FormatVersion:
    """The format version, if the object has the expected kind and this version can read it."""
    if version.kind != kind:
        raise CorruptionError(
            f"not a {kind}",
            object_name=object_name,
            found=version.kind or "an object that does not state its kind",
            expected=kind,
        )
    if version.major < 1:
        raise CorruptionError(
            f"{kind} has an impossible format version",
            object_name=object_name,
            found=f"format version {version.major}.{version.minor}",
            expected="1.0 or newer",
        )
    if version.major > FORMAT_MAJOR:
        raise IncompatibleStateError(
            f"{kind} was written in a newer format",
            object_name=object_name,
            found=f"format version {version.major}.{version.minor}",
            expected=f"at most {FORMAT_MAJOR}.x",
            action="use a newer version of Lakestate",
        )
    return FormatVersion(version.major, version.minor)


def format_message(version: FormatVersion, kind: str) -> files_pb2.FormatVersion:
    """The format version as Protobuf."""
    return files_pb2.FormatVersion(major=version.major, minor=version.minor, kind=kind)


def unknown_fields_reader(root: M) -> UnknownFields:
    """A function that returns the unknown fields of any part of `root`.

    Almost always there are none, which one check of the whole message shows. Checking each of 10,000
    parts would double the decoding time.
    """
    known = type(root)()
    known.CopyFrom(root)
    known.DiscardUnknownFields()
    return _no_unknown_fields if known.ByteSize() == root.ByteSize() else _unknown_fields


def _no_unknown_fields(_: Message) -> bytes:
    return b""


def _unknown_fields(message: Message) -> bytes:
    rest = type(message)()
    rest.CopyFrom(message)
    _forget_known(rest)
    return rest.SerializeToString(deterministic=True)


def _forget_known(message: Message) -> None:
    for field, value in message.ListFields():
        if not field.is_repeated and field.message_type and field.message_type.full_name in _KEPT_BY_HOLDER:
            _forget_known(value)
            if value.ByteSize() > 0:
                continue
        message.ClearField(field.name)


def with_unknown_fields(message: M, unknown: bytes) -> M:
    """The message together with the unknown fields that were kept for it."""
    if unknown:
        message.MergeFromString(unknown)
    return message


def serialise(message: Message) -> bytes:
    """Serialise deterministically. Refuses a message too large to be read again."""
    size_bytes = message.ByteSize()
    if size_bytes > OBJECT_BYTES_MAX:
        raise InvalidInputError(
            "metadata is too large to be stored",
            object_name=message.DESCRIPTOR.name,
            found=f"{size_bytes:,} bytes",
            expected=f"at most {OBJECT_BYTES_MAX:,}",
            action="let compaction keep up: metadata grows with the number of files",
        )
    return message.SerializeToString(deterministic=True)
