"""Translates obstore's errors: retry, a condition that did not hold, or give up.

Decided by the type of the error and by what `failure_text` reads from it. Knows no operation: what a
failed condition means is decided by `conditional`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from obstore import exceptions

from lakestate.errors import InvalidInputError, LakestateError, NotFoundError
from lakestate.storage.remote.failure_text import Failure, Obstacle, parse_failure
from lakestate.storage.retry import Applied, TransientFault
from lakestate.storage.spans import beyond_end_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakestate.storage.redaction import Redaction

_NOT_APPLIED_STATUS = frozenset({408, 425, 429, 503})
"""The server did not accept the request. Any other 5xx may come after it acted."""

_NOT_APPLIED_CODES = frozenset({"RequestTimeout", "BadDigest", "RequestTimeTooSkewed", "OperationAborted"})
"""Codes that S3 sends with a 4xx status although the next attempt may succeed: the request stalled or was
damaged in transit, was signed too long ago, or came while another was in progress."""

_NO_BUCKET_CODES = frozenset({"NoSuchBucket", "ContainerNotFound"})
_DENIED_STATUS = frozenset({401, 403})
_DENIED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_CONDITION = (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError)
_PERMANENT = (
    exceptions.InvalidPathError,
    exceptions.NotSupportedError,
    exceptions.UnknownConfigurationKeyError,
)


class ConditionFailedError(Exception):
    """The store refused a conditional write because of the object's state, or of another write (409)."""


@contextmanager
def translate_obstore_errors(object_name: str, redaction: Redaction) -> Iterator[None]:
    """Translate what obstore raises. The cause is dropped: its text may contain credentials."""
    try:
        yield
    except FileNotFoundError as error:
        raise _not_found_error(object_name, parse_failure(error)) from None
    except exceptions.BaseError as error:
        raise _translation(error, object_name, redaction.reason(str(error))) from None


def is_not_applied(status: int | None, code: str | None) -> bool:
    """Whether the answer means that the server did not act. A 200 with an error inside does not."""
    return status in _NOT_APPLIED_STATUS or (status != 200 and code in _NOT_APPLIED_CODES)


def _translation(error: exceptions.BaseError, object_name: str, reason: str) -> Exception:
    failure = parse_failure(error)
    if isinstance(error, _CONDITION):
        return ConditionFailedError(reason)
    if is_not_applied(failure.status, failure.code):
        return TransientFault(reason, Applied.NO)
    is_permanent = failure.status is not None and _is_permanent(failure.status)
    if is_permanent and failure.obstacle is Obstacle.ASKED_THE_INSTANCE:
        return _no_credentials_error(object_name, reason)
    if isinstance(error, _DENIED) or failure.status in _DENIED_STATUS:
        return _refusal_error("access denied", object_name, reason, "check the credentials and their rights")
    if failure.code in _NO_BUCKET_CODES:
        return _not_found_error(object_name, failure)
    if failure.status == 416 or failure.obstacle is Obstacle.OUT_OF_RANGE:
        return beyond_end_error(object_name)
    if isinstance(error, _PERMANENT) or is_permanent:
        return _refusal_error("the store refused the request", object_name, reason, None)
    return _transient_or_misconfigured(failure.obstacle, object_name, reason)


def _transient_or_misconfigured(obstacle: Obstacle | None, object_name: str, reason: str) -> Exception:
    match obstacle:
        case Obstacle.INVALID_ENDPOINT:
            action = "check the endpoint in the options and in the environment"
            return _refusal_error("no request can be made", object_name, reason, action)
        case Obstacle.NO_CREDENTIALS:
            return _no_credentials_error(object_name, reason)
        case Obstacle.NOT_CONNECTED:
            return TransientFault(reason, Applied.NO)
        case _:
            return TransientFault(reason, Applied.MAYBE)


def _is_permanent(status: int) -> bool:
    return 300 <= status < 500 and status not in _NOT_APPLIED_STATUS


def _not_found_error(object_name: str, failure: Failure) -> NotFoundError:
    if failure.code in _NO_BUCKET_CODES:
        action = "create the bucket, or correct the URL"
        return NotFoundError("no such bucket", object_name=object_name, action=action)
    return NotFoundError("no such object", object_name=object_name)


def _no_credentials_error(object_name: str, reason: str) -> LakestateError:
    return _refusal_error(
        "no credentials", object_name, reason, "pass them as options or set the environment"
    )


def _refusal_error(summary: str, object_name: str, reason: str, action: str | None) -> LakestateError:
    return InvalidInputError(summary, object_name=object_name, found=reason, action=action)
