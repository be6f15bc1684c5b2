"""Calls of an Iceberg catalog: repeated while it does not answer, with our own errors.

Only for calls that may be repeated. An append may not: see `IcebergCommitter`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from pyiceberg.exceptions import BadRequestError, ForbiddenError, OAuthError, RESTError, UnauthorizedError
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from lakestate.errors import InvalidInputError, StorageUnavailableError

REFUSED = (BadRequestError, UnauthorizedError, ForbiddenError, OAuthError, ArgumentError)
UNREACHABLE = (RESTError, SQLAlchemyError, OSError)
"""The catalog may or may not have acted on the call. Connection errors are OSErrors."""

_WAIT_FIRST_S = 0.02
_WAIT_MAX_S = 2.0

Answer = TypeVar("Answer")


def call_catalog(ask: Callable[[], Answer], table_name: str, attempts_max: int) -> Answer:
    """The answer of a catalog. The call is repeated while the catalog cannot be reached."""
    failure: Exception | None = None
    for attempt in range(attempts_max):
        started_s = time.monotonic()
        try:
            return ask()
        except REFUSED as cause:
            raise refusal_error(table_name, cause) from cause
        except UNREACHABLE as cause:
            failure = cause
        if attempt < attempts_max - 1:
            wait_after(attempt, started_s)
    raise StorageUnavailableError(
        "the Iceberg catalog does not answer",
        object_name=table_name,
        found=failure,
        expected=f"an answer to one of {attempts_max} calls",
        action="check that it runs and can be reached from here, and start again",
    ) from failure


def wait_after(attempt: int, started_s: float) -> None:
    """Wait longer after each failure, for a random time, so that callers that failed together spread out.

    The time since the call started is part of the wait: a catalog that is locked has been waited for.
    """
    longest = min(_WAIT_MAX_S, _WAIT_FIRST_S * 2**attempt)
    wanted = longest * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
    time.sleep(max(0.0, wanted - (time.monotonic() - started_s)))


def refusal_error(table_name: str, cause: Exception) -> InvalidInputError:
    """The error for a call that the catalog will refuse every time."""
    return InvalidInputError("the Iceberg catalog refuses the call", object_name=table_name, found=cause)
