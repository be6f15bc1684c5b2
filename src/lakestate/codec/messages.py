"""The rules every Protobuf message is decoded by: strict about damage, gentle about the unknown.

Bytes that do not decode, or decode to something impossible, are a CorruptionError naming the
object. Fields that this version does not know are kept and written back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import FORMAT_MAJOR, FormatVersion
from lakestate.v1 import files_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")

OBJECT_BYTES_MAX = 1 << 30


def parsed(message: M, data: bytes, object_name: str, what: str) -> M:
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
            action="restore the object, or open an epoch that does not need it",
        ) from cause
    return message


def converted(convert: Callable[[M], T], message: M, object_name: str, what: str) -> T:
    """The message as a frozen value, or CorruptionError if its content is impossible."""
    try:
        return convert(message)
    except (InvalidInputError, ValueError) as cause:
        raise CorruptionError(
            f"{what} holds an impossible value", object_name=object_name, found=str(cause)[:300]
        ) from cause


def checked_format(version: files_pb2.FormatVersion, kind: str, object_name: str) -> FormatVersion:
    """The format, if the object is of that kind and this version can read it."""
    if version.kind != kind:
        raise CorruptionError(
            f"not a {kind}",
            object_name=object_name,
            found=version.kind or "an object that does not say what it is",
            expected=kind,
        )
    if version.major > FORMAT_MAJOR or version.major < 1:
        raise IncompatibleStateError(
            f"{kind} was written in a newer format",
            object_name=object_name,
            found=f"format version {version.major}.{version.minor}",
            expected=f"at most {FORMAT_MAJOR}.x",
            action="use a newer version of Lakestate",
        )
    return FormatVersion(version.major, version.minor)


def format_message(version: FormatVersion, kind: str) -> files_pb2.FormatVersion:
    """The format to store."""
    return files_pb2.FormatVersion(major=version.major, minor=version.minor, kind=kind)


def unknown_fields(message: Message) -> bytes:
    """The encoded fields of a message that this version does not know."""
    if len(UnknownFieldSet(message)) == 0:  # type: ignore[no-untyped-call]
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for field in message.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return rest.SerializeToString()


def with_unknown(message: M, unknown: bytes) -> M:
    """The message with the fields that were kept for it."""
    if unknown:
        message.MergeFromString(unknown)
    return message


def serialised(message: Message) -> bytes:
    """The same bytes for the same content, every time."""
    return message.SerializeToString(deterministic=True)
