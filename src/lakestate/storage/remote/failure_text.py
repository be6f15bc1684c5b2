"""Reads what obstore reports about a failure from its error text.

obstore has exception types for a few outcomes only. The HTTP status, the server's error code and the
reason why no request was made appear nowhere but in the message, so `parse_failure` reads them
there, and nothing else in `storage` reads meaning from a message. The texts of obstore 0.12 are
recorded in `tests/unit/storage/remote/test_errors.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

_CODE = re.compile(r"<Code>([^<]*)</Code>")
_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})")


class Obstacle(Enum):
    """A reason for the failure that neither status nor code expresses."""

    OUT_OF_RANGE = auto()
    INVALID_ENDPOINT = auto()
    NO_CREDENTIALS = auto()
    ASKED_THE_INSTANCE = auto()
    """The machine was asked for credentials, because none were given."""
    NOT_CONNECTED = auto()


# In this order: a text may match several.
_OBSTACLES = (
    (
        Obstacle.OUT_OF_RANGE,
        re.compile(r"Invalid range|StartTooLarge|Range Not Satisfiable", re.IGNORECASE),
    ),
    (Obstacle.INVALID_ENDPOINT, re.compile(r"kind: Builder|builder error")),
    (
        Obstacle.NO_CREDENTIALS,
        re.compile(r"Missing\w*(?:Key|Secret|Account|Credential|Token)|Missing (?:Access|Secret)"),
    ),
    (Obstacle.ASKED_THE_INSTANCE, re.compile(r"http://169\.254\.169\.254/")),
    # The client's own kind; `kind: ConnectionReset` further inside may follow a sent request.
    (Obstacle.NOT_CONNECTED, re.compile(r"HttpError \{\s*kind: Connect,")),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The HTTP status and the server's error code, if it answered, and any other known reason."""

    status: int | None
    code: str | None
    obstacle: Obstacle | None


def parse_failure(error: Exception) -> Failure:
    """The failure that the text of one of obstore's errors describes.

    >>> parse_failure(FileNotFoundError("status code: 404: <Error><Code>NoSuchKey</Code></Error>"))
    Failure(status=404, code='NoSuchKey', obstacle=None)
    """
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    return Failure(
        status=int(status[1] or status[2]) if status else None,
        code=code[1] if code else None,
        obstacle=next((obstacle for obstacle, pattern in _OBSTACLES if pattern.search(text)), None),
    )
