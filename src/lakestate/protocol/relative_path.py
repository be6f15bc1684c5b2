"""The rules for paths read from metadata: they stay below the job's root, or lead to its parent's. Pure.

`@totals/checkpoints/3/manifest.pb` is an object of job `totals`, below the same checkpoint URL: a fork refers
to objects of the jobs that it comes from. A path without such an origin is one of the job that names it.
Only what lies below `checkpoints/` can be referred to: nothing that says who may write, and nothing outside
of the checkpoint URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakestate.errors import InvalidInputError
from lakestate.protocol.names import require_name

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


ORIGIN_MARK = "@"
"""The name of a job never begins with it, and neither does a path below a job's root."""

REFERABLE = "checkpoints/"


def split_origin(path: str) -> tuple[str | None, str]:
    """The job whose object a path names, None for the one that names it, and the path below that job's root.

    >>> split_origin("@totals/checkpoints/3/manifest.pb")
    ('totals', 'checkpoints/3/manifest.pb')
    >>> split_origin("checkpoints/3/manifest.pb")
    (None, 'checkpoints/3/manifest.pb')
    """
    if not path.startswith(ORIGIN_MARK):
        return None, path
    job_id, _, below = path.removeprefix(ORIGIN_MARK).partition("/")
    return job_id, below


def with_origin(path: str, job_id: str) -> str:
    """The path by which another job names an object of this one. What has an origin keeps it.

    >>> with_origin("checkpoints/3/manifest.pb", "totals")
    '@totals/checkpoints/3/manifest.pb'
    >>> with_origin("@older/checkpoints/3/manifest.pb", "totals")
    '@older/checkpoints/3/manifest.pb'
    """
    return path if path.startswith(ORIGIN_MARK) else f"{ORIGIN_MARK}{job_id}/{path}"


def require_object_path(path: str) -> str:
    """The path itself, if it names an object below the job's root, or one that a fork may refer to.

    >>> require_object_path("@../x/checkpoints/3/manifest.pb")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: not a valid job name: '..'; ...
    """
    if path.startswith(ORIGIN_MARK):
        job_id, below = split_origin(path)
        require_name("job", job_id or "")
        if not below.startswith(REFERABLE):
            raise InvalidInputError(
                "a path leads to what no other job may refer to",
                object_name=repr(path[:120]),
                expected=f"{ORIGIN_MARK}job/{REFERABLE}…",
            )
    return require_relative_path(path)


def other_jobs(paths: Iterable[str]) -> frozenset[str]:
    """The other jobs that own some of these objects.

    >>> other_jobs(["checkpoints/4/manifest.pb", "@totals/checkpoints/3/operator-op-0.metadata"])
    frozenset({'totals'})
    """
    origins = (split_origin(path)[0] for path in paths)
    return frozenset(origin for origin in origins if origin is not None)
