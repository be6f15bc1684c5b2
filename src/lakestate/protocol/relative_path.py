"""The rule for paths read from metadata: they must stay below the job's root. Pure."""

from __future__ import annotations

import re

from lakestate.errors import InvalidInputError

PATH_BYTES_MAX = 900
# No character is longer than four bytes, so almost no path has to be encoded to be measured.
_CHARS_SAFE = PATH_BYTES_MAX // 4
PART_BYTES_MAX = 255
_PART_CHARS_SAFE = PART_BYTES_MAX // 4
# The last is where a store keeps everything that is not an object: uploads, locks.
_FORBIDDEN_PARTS = frozenset(("", ".", "..", ".lakestate"))
_PLAIN = re.compile(r"[^\x00-\x1f\x7f\\\ud800-\udfff]+")


def require_relative_path(path: str) -> str:
    """The path itself, if it names an object below the root that it will be joined to.

    >>> require_relative_path("checkpoints/3/manifest.pb")
    'checkpoints/3/manifest.pb'
    >>> require_relative_path("../other-job/generation.json")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: path leaves the job's root or is malformed: ...
    """
    parts = path.split("/")
    if (
        not _PLAIN.fullmatch(path)
        or not _FORBIDDEN_PARTS.isdisjoint(parts)
        or (len(path) > _CHARS_SAFE and len(path.encode()) > PATH_BYTES_MAX)
        or any(len(part) > _PART_CHARS_SAFE and len(part.encode()) > PART_BYTES_MAX for part in parts)
    ):
        raise InvalidInputError(
            "path leaves the job's root or is malformed",
            object_name=repr(path[:120]),
            expected="a relative path of plain parts below the job's root",
        )
    return path
