"""Values that users write in configuration: sizes, durations, and the location of a store.

Data only. Nothing here opens a connection; `lakestate.storage.open_store` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from lakestate.errors import InvalidInputError

T = TypeVar("T")

_UNIT_BYTES = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_UNIT_US = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def size_bytes(size: int | str) -> int:
    """A size such as `128MB`, in bytes.

    >>> size_bytes("128MB"), size_bytes("1.5 KiB"), size_bytes(42)
    (128000000, 1536, 42)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise InvalidInputError("a size cannot be negative", found=size)
        return size
    number, unit = _split_quantity(size, "size", '"128MB", "64 MiB" or a number of bytes')
    if unit.lower() not in _UNIT_BYTES:
        raise InvalidInputError("unknown unit of size", found=repr(size), expected=", ".join(_UNIT_BYTES))
    return round(number * _UNIT_BYTES[unit.lower()])


def duration_us(duration: timedelta | str) -> int:
    """A duration such as `10 seconds`, in microseconds.

    >>> duration_us("10 seconds"), duration_us("1.5h"), duration_us(timedelta(minutes=1))
    (10000000, 5400000000, 60000000)
    """
    if isinstance(duration, timedelta):
        if duration < timedelta(0):
            raise InvalidInputError("a duration cannot be negative", found=duration)
        return duration // timedelta(microseconds=1)
    number, unit = _split_quantity(duration, "duration", '"10 seconds", "5 min" or a timedelta')
    singular = unit.lower().removesuffix("s") if len(unit) > 2 else unit.lower()
    if singular not in _UNIT_US:
        raise InvalidInputError("unknown unit of time", found=repr(duration), expected=", ".join(_UNIT_US))
    found_us = number * _UNIT_US[singular]
    if abs(found_us - round(found_us)) > max(1e-3, 1e-9 * found_us):
        raise InvalidInputError(
            "a duration is not a whole number of microseconds",
            found=repr(duration),
            expected="for example 1 ms",
        )
    return round(found_us)


def _split_quantity(text: object, what: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInputError(f"not a {what}", found=repr(text), expected=example)
    return float(match[1]), match[2]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a store retries after a transient fault (timeouts, 429, 5xx).

    The deadline bounds the whole call, including attempts and waits. A call made of many requests,
    such as a long transfer or listing, may take longer as long as it makes progress. Waits double
    from `backoff_first_ms` to `backoff_max_ms`. Each is shortened by a random share, so that
    subtasks that failed together do not retry together.
    """

    deadline_ms: int = 60_000
    attempt_timeout_ms: int = 20_000
    backoff_first_ms: int = 50
    backoff_max_ms: int = 5_000


def require_instance(what: str, given: T, kind: type[Any]) -> T:
    """The object itself, if it is of this kind. A class given in its place is named as such.

    >>> require_instance("sink out", timedelta, timedelta)
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: sink out is a class; found timedelta; expected an object; \
write timedelta(…) [invalid_input]
    """
    if isinstance(given, kind) and not isinstance(given, type):
        return given
    if isinstance(given, type):
        name = given.__name__
        raise InvalidInputError(
            f"{what} is a class", found=name, expected="an object", action=f"write {name}(…)"
        )
    raise InvalidInputError(f"{what} is of another type", found=type(given).__name__, expected=kind.__name__)


def store_url(location: str | Path) -> str:
    """The URL of a location: a URL stays as it is, and a path is one of this machine's file system.

    >>> store_url("s3://bucket/state"), store_url("/data/my state"), store_url("file:/data/state")
    ('s3://bucket/state', 'file:///data/my%20state', 'file:///data/state')
    """
    if isinstance(location, Path):
        path = location.expanduser() if location.parts[:1] == ("~",) else location
        # Not `resolve`: a symbolic link may lead elsewhere tomorrow, and the location keeps its name.
        return Path(os.path.abspath(path)).as_uri()  # noqa: PTH100
    if not isinstance(location, str) or not location.strip():
        raise InvalidInputError(
            "not the location of a store",
            found=repr(location),
            expected="a URL such as s3://bucket/x, or a path",
        )
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return store_url(Path(location))
    if scheme == "file" and rest.startswith("/") and not rest.startswith("//"):
        return f"file://{rest}"
    return location


AZURE_SCHEMES = ("abfss", "abfs", "wasbs", "wasb")
"""Schemes of Azure's Hadoop drivers, whose URLs are `scheme://container@account…/path`."""

_CONTAINER = re.compile(r"[a-z0-9$][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where a store is and how to reach it. Picklable; never shows a credential.

    The location is a URL or a local path. `options` are the store's own settings by name (for S3:
    `endpoint`, `region`, `access_key_id`, `secret_access_key`, …). Anything not given comes from the
    environment.

    >>> StoreConfig("s3://bucket/state", {"region": "eu-west-1", "secret_access_key": "s3cr3t"})
    StoreConfig('s3://bucket/state', options=region, secret_access_key)
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, compare=True)
    retry: RetryPolicy = RetryPolicy()

    if TYPE_CHECKING:  # The field is a URL, whatever it is made from.

        def __init__(
            self,
            url: str | Path,
            options: Mapping[str, str] = MappingProxyType({}),
            retry: RetryPolicy = RetryPolicy(),  # noqa: B008
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", store_url(self.url))
        parts = urlsplit(self.url)
        if "@" in parts.netloc and not _names_container(parts):
            raise InvalidInputError(
                "a store URL must not carry credentials",
                object_name=f"{parts.scheme}://***@{parts.hostname or ''}{parts.path}",
                action="pass them as options or through the environment",
            )
        if parts.query or parts.fragment:
            # A signed URL has its credential in the query.
            raise InvalidInputError(
                "a store URL must not carry a query or a fragment",
                object_name=f"{parts.scheme}://{parts.netloc}{parts.path}",
                action="pass settings as options; write ? as %3F and # as %23 in a file path",
            )
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.options))
        return f"StoreConfig({self.url!r}, options={names or 'none'})"

    def __hash__(self) -> int:
        return hash((self.url, tuple(sorted(self.options.items())), self.retry))

    def __reduce__(self) -> tuple[type[StoreConfig], tuple[str, dict[str, str], RetryPolicy]]:
        # A mapping proxy does not pickle, and Spark ships this value to every executor.
        return (StoreConfig, (self.url, dict(self.options), self.retry))


def _names_container(parts: SplitResult) -> bool:
    """Whether what stands before the host is a container of Azure, and not a user or a key."""
    user, _, host = parts.netloc.rpartition("@")
    return parts.scheme in AZURE_SCHEMES and _CONTAINER.fullmatch(user) is not None and "." in host
