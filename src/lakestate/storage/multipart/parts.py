"""Rules shared by all multipart uploads: numbering, receipts, records, and what counts as complete.

Pure: facts in, a value or an error out.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import xxhash

from lakestate.errors import CorruptionError, InvalidInputError, LakestateError, NotFoundError
from lakestate.protocol.sealed_json import seal, unseal
from lakestate.storage.object_path import require_path
from lakestate.storage.store import DanglingUpload, UploadId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakestate.storage.store import Data, ObjectInfo, UploadedPart

_TOKEN = re.compile(r"u?[0-9a-f]{32}")

PART_NUMBER_MAX = 10_000
"""The limit of S3, applied everywhere so that a job can move between stores."""


def require_part_number(number: int) -> int:
    """The number itself, if it is a valid part number."""
    if not 1 <= number <= PART_NUMBER_MAX:
        raise InvalidInputError("not a part number", found=number, expected=f"1 to {PART_NUMBER_MAX}")
    return number


def new_token(unique: str) -> str:
    """The token of a new upload that is kept as files or objects.

    >>> new_token("4f1c0b6ee9a34d3f8d2f7a5c1b0e9d8c")
    'u4f1c0b6ee9a34d3f8d2f7a5c1b0e9d8c'
    """
    return f"u{unique}"


def is_token(token: str) -> bool:
    """Whether it is a token of such an upload, of this version or of an older one."""
    return _TOKEN.fullmatch(token) is not None


def record_name(token: str) -> str:
    """The name of an upload's record. Readers' patterns find no name here; they found those of old."""
    return "_upload" if token.startswith("u") else "upload.json"


def part_stem(token: str) -> str:
    """What the names of an upload's parts begin with; the number follows."""
    return "_part-" if token.startswith("u") else "part-"


def check_parts(object_name: str, parts: Sequence[UploadedPart]) -> None:
    """Raise InvalidInputError unless an object can be made of the parts."""
    numbers = [require_part_number(part.number) for part in parts]
    if not numbers or any(later <= earlier for earlier, later in pairwise(numbers)):
        raise InvalidInputError(
            "not the parts of an object",
            object_name=object_name,
            found=f"part numbers {numbers[:20]}",
            expected="at least one part, in rising order",
        )


def content_receipt(chunks: Iterable[Data]) -> str:
    """A receipt that identifies exactly these bytes, like an entity tag of S3.

    >>> content_receipt([b"one ", b"part"]) == content_receipt([b"one part"])
    True
    """
    digest = xxhash.xxh3_64()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def is_made_of(data: bytes, parts: Sequence[UploadedPart]) -> bool:
    """Whether the bytes are exactly those that the parts' receipts identify."""
    ends = [*accumulate(part.size_bytes for part in parts)]
    pieces = [memoryview(data)[end - part.size_bytes : end] for part, end in zip(parts, ends, strict=True)]
    receipts = [content_receipt([piece]) for piece in pieces]
    return len(data) == ends[-1] and receipts == [part.token for part in parts]


def encode_upload_record(path: str, started_ms: int) -> bytes:
    """The record of an upload that is kept as files or objects, with its own checksum."""
    return seal({"path": path, "started_ms": started_ms})


def decode_upload_record(record: bytes, token: str, object_name: str) -> DanglingUpload:
    """The upload of a record, or CorruptionError naming the record."""
    try:
        body = unseal(record, object_name)
        path, started_ms = body["path"], body["started_ms"]
        if not isinstance(path, str) or type(started_ms) is not int:
            raise TypeError("not a path and a time")
        return DanglingUpload(UploadId(require_path(path), token), started_ms)
    except (LakestateError, KeyError, TypeError) as cause:
        raise CorruptionError(
            "the record of an upload cannot be read",
            object_name=object_name,
            found=f"{len(record)} bytes: {record[:40]!r}",
            action="restore the record; if nothing refers to the upload, remove its folder",
        ) from cause


def total_bytes(parts: Sequence[UploadedPart]) -> int:
    """The size of the object that the parts make."""
    return sum(part.size_bytes for part in parts)


def require_completed_object(
    object_name: str, there: ObjectInfo | None, parts: Sequence[UploadedPart]
) -> ObjectInfo:
    """The object of an upload that no longer exists, if it was completed earlier."""
    if there is None:
        raise missing_upload_error(object_name)
    return require_whole_object(object_name, there, parts)


def require_whole_object(object_name: str, there: ObjectInfo, parts: Sequence[UploadedPart]) -> ObjectInfo:
    """The object itself, if it has the size of its parts."""
    if there.size_bytes != total_bytes(parts):
        raise CorruptionError(
            "the object is not made of these parts",
            object_name=object_name,
            found=f"{there.size_bytes} bytes",
            expected=f"{total_bytes(parts)} bytes",
            action="do not use the object; write the file again under another name",
        )
    return there


def missing_upload_error(object_name: str) -> NotFoundError:
    """The error for an upload that was aborted or never existed."""
    return NotFoundError(
        "no such upload, and no object in its place",
        object_name=object_name,
        action="it was aborted or has expired: write the file again",
    )


def changed_part_error(object_name: str, part: UploadedPart) -> InvalidInputError:
    """The error for a receipt that does not match what the store holds."""
    return InvalidInputError(
        f"part {part.number} of the upload is missing or was replaced",
        object_name=object_name,
        expected=f"{part.size_bytes} bytes with receipt {part.token}",
        action="take the receipts from list_parts",
    )
