"""The library deltalake: how it reaches a table, and its errors as ours.

deltalake is imported only when a table is used: a pipeline without Delta does not need it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar
from urllib.parse import urlsplit

from lakestate.config import StoreConfig
from lakestate.errors import (
    InvalidInputError,
    LakestateError,
    MissingExtraError,
    NotFoundError,
    StorageUnavailableError,
)
from lakestate.storage.local.object_files import root_of
from lakestate.storage.redaction import Redaction
from lakestate.storage.remote.location import azure_account_of, endpoint_of

UNSAFE_RENAME = "aws_s3_allow_unsafe_rename"
"""The setting with which two writers of a table on S3 overwrite each other's commits."""

_RETRIES_MAX = 10
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_REFUSED = re.compile(r"privileges|permission|denied|forbidden|credential|unauthenticated", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"unsupported table features|unknown .*feature|not supported", re.IGNORECASE)

Answer = TypeVar("Answer")


def require_deltalake() -> None:
    """Raise MissingExtraError if deltalake is not installed."""
    try:
        import_module("deltalake")
    except ImportError as missing:
        raise MissingExtraError(
            "Delta tables need deltalake", action='install it with: pip install "lakestate[delta]"'
        ) from missing


def table_uri(config: StoreConfig) -> str:
    """Where deltalake finds a table: a path for a local one, which needs no quoting.

    >>> table_uri(StoreConfig("file:///data/my%20orders")), table_uri(StoreConfig("s3://bucket/orders"))
    ('/data/my orders', 's3://bucket/orders')
    """
    return str(root_of(config.url)) if config.url.startswith("file://") else config.url


def storage_options(config: StoreConfig) -> dict[str, str]:
    """The settings of a store as deltalake wants them. A commit on S3 is a put that replaces nothing."""
    scheme = urlsplit(config.url).scheme
    if scheme == "memory":
        raise InvalidInputError(
            "a Delta table cannot be in memory: deltalake would not find it", object_name=config.url
        )
    if scheme == "file":
        return {}
    options = {**config.options, **_retry_options(config)}
    if scheme == "s3":
        _refuse_unsafe_rename(config)
        endpoint = endpoint_of(config)
        if endpoint is not None:
            options |= {"endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
        return {"conditional_put": "etag", **options}
    account = None if scheme == "gs" else azure_account_of(config)
    return options if account is None else {**options, "account_name": account}


def call_deltalake(ask: Callable[[], Answer], config: StoreConfig) -> Answer:
    """The answer of deltalake, with its errors as ours."""
    try:
        return ask()
    except LakestateError:
        raise
    except Exception as cause:  # noqa: BLE001 - deltalake raises Exception itself
        # Not chained: the library's message may hold what must not be shown.
        raise delta_error(cause, config) from None


def delta_error(cause: Exception, config: StoreConfig) -> LakestateError:
    """The error of deltalake as one of ours, by what the caller should do."""
    from deltalake.exceptions import DeltaError, TableNotFoundError

    text = reason(cause, config)
    if isinstance(cause, TableNotFoundError):
        return NotFoundError(
            "there is no Delta table", object_name=config.url, action="create it, or pass create=True"
        )
    if is_refusal(cause):
        return InvalidInputError(
            "access to the Delta table is refused",
            object_name=config.url,
            found=text,
            action="give the job the right to read, list and write there",
        )
    if isinstance(cause, OSError):
        return StorageUnavailableError(
            "the Delta table cannot be reached",
            object_name=config.url,
            found=text,
            action="check that its store runs and can be reached from here, and start again",
        )
    kind = "deltalake cannot use the table" if _UNSUPPORTED.search(text) else "deltalake refuses the call"
    shown = text if isinstance(cause, DeltaError) else f"{type(cause).__name__}: {text}"
    return InvalidInputError(kind, object_name=config.url, found=shown)


def is_refusal(cause: Exception) -> bool:
    """Whether the store refuses access: it will do so every time."""
    return _REFUSED.search(str(cause)) is not None


def reason(cause: Exception, config: StoreConfig) -> str:
    """The message of an error on one line: without colours, without addresses of code, without secrets."""
    lines = [line for line in _COLOUR.sub("", str(cause)).splitlines() if "<unknown>" not in line]
    return Redaction(config.options).reason(" ".join(lines))


def _retry_options(config: StoreConfig) -> dict[str, str]:
    retry = config.retry
    return {
        "max_retries": str(_RETRIES_MAX),
        "retry_timeout": f"{retry.deadline_ms}ms",
        "timeout": f"{retry.attempt_timeout_ms}ms",
    }


def _refuse_unsafe_rename(config: StoreConfig) -> None:
    given = {name.lower(): value for name, value in (*os.environ.items(), *config.options.items())}
    if given.get(UNSAFE_RENAME, "false").lower() in ("true", "1", "yes", "on"):
        raise InvalidInputError(
            "with this setting writers of a Delta table overwrite each other's commits",
            object_name=config.url,
            found=UNSAFE_RENAME.upper(),
            action="remove it from the options and the environment: a commit is a conditional put",
        )
