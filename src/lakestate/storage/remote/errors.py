"""What obstore's errors mean: try again, a condition that did not hold, or give up.

obstore tells most failures of a server only in its text, so the text is read here and nowhere
else. Knows no operation: what a failed condition means is decided by `conditional`.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from obstore import exceptions

from lakestate.errors import InvalidInputError, LakestateError, NotFoundError
from lakestate.storage.retry import Applied, TransientFault
from lakestate.storage.spans import beyond_end_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakestate.storage.redaction import Redaction

_NOT_APPLIED_STATUS = frozenset({408, 425, 429, 503})
"""The server says that it did not take the request. Any other 5xx may come after it acted."""

_NOT_APPLIED_CODES = frozenset({"RequestTimeout", "BadDigest", "RequestTimeTooSkewed", "OperationAborted"})
"""What S3 says, as if it were our fault, about a request that stalled or was damaged on its way, was signed
too long ago, or came while another was at work: the next one may succeed."""

_CODE = re.compile(r"<Code>([^<]*)</Code>")
_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})")
_NOT_CONNECTED = re.compile(r"HttpError \{\s*kind: Connect,")
"""The client's own word for it; `kind: ConnectionReset` further inside may follow a sent request."""

_CREDENTIALS = re.compile(r"Missing\w*(?:Key|Secret|Account|Credential|Token)|Missing (?:Access|Secret)")
_OUT_OF_RANGE = re.compile(r"Invalid range|StartTooLarge|Range Not Satisfiable", re.IGNORECASE)
_DENIED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_CONDITION = (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError)
_PERMANENT = (
    exceptions.InvalidPathError,
    exceptions.NotSupportedError,
    exceptions.UnknownConfigurationKeyError,
)


class ConditionFailedError(Exception):
    """The store refused a conditional write because of what it holds, or of another in flight (409)."""


@contextmanager
def translate_obstore_errors(object_name: str, redaction: Redaction) -> Iterator[None]:
    """Translate what obstore raises. The cause is cut off: its text may show credentials."""
    try:
        yield
    except FileNotFoundError as error:
        raise _not_found_error(object_name, redaction.reason(str(error))) from None
    except exceptions.BaseError as error:
        raise _translation(error, object_name, redaction.reason(str(error))) from None


def _translation(error: exceptions.BaseError, object_name: str, reason: str) -> Exception:
    text = str(error)
    status = _status(text)
    if isinstance(error, _CONDITION):
        return ConditionFailedError(reason)
    if is_not_applied(status, _code(text)):
        return TransientFault(reason, Applied.NO)
    if isinstance(error, _DENIED):
        return _refusal_error("access denied", object_name, reason, "check the credentials and their rights")
    if status == 416 or _OUT_OF_RANGE.search(text):
        return beyond_end_error(object_name)
    if isinstance(error, _PERMANENT) or (status is not None and _is_permanent(status)):
        return _refusal_error("the store refused the request", object_name, reason, None)
    return _transient_or_misconfigured(text, status, object_name, reason)


def _transient_or_misconfigured(text: str, status: int | None, object_name: str, reason: str) -> Exception:
    if "kind: Builder" in text or "builder error" in text:
        action = "check the endpoint in the options and in the environment"
        return _refusal_error("no request can be made", object_name, reason, action)
    if _CREDENTIALS.search(text):
        return _refusal_error(
            "no credentials", object_name, reason, "pass them as options or set the environment"
        )
    if _NOT_CONNECTED.search(text):
        return TransientFault(reason, Applied.NO)
    return TransientFault(reason, Applied.MAYBE)


def is_not_applied(status: int | None, code: str | None) -> bool:
    """Whether the server says that it did not act. An answer of 200 with an error inside does not."""
    return status in _NOT_APPLIED_STATUS or (status != 200 and code in _NOT_APPLIED_CODES)


def _status(text: str) -> int | None:
    match = _STATUS.search(text)
    return int(match[1] or match[2]) if match else None


def _code(text: str) -> str | None:
    match = _CODE.search(text)
    return match[1] if match else None


def _is_permanent(status: int) -> bool:
    return 300 <= status < 500 and status not in _NOT_APPLIED_STATUS


def _not_found_error(object_name: str, reason: str) -> NotFoundError:
    if "NoSuchBucket" in reason or "ContainerNotFound" in reason:
        action = "create the bucket, or correct the URL"
        return NotFoundError("no such bucket", object_name=object_name, action=action)
    return NotFoundError("no such object", object_name=object_name)


def _refusal_error(summary: str, object_name: str, reason: str, action: str | None) -> LakestateError:
    return InvalidInputError(summary, object_name=object_name, found=reason, action=action)
