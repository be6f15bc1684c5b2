"""Connections to PostgreSQL, and its errors as ours. No text from here shows a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakestate.errors import (
    InvalidInputError,
    LakestateError,
    MissingExtraError,
    StorageUnavailableError,
)

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 60
_SECRETS = ("password", "sslpassword", "passfile", "sslkey")
_SESSION = {
    # A session of a host that is gone must not hold the lock of the marker for hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "idle_in_transaction_session_timeout": "5min",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    # What COPY reads is written in these forms.
    "DateStyle": "ISO",
    "TimeZone": "UTC",
}
_REFUSED = ("28", "3D", "42501")
"""Classes of SQLSTATE that a second attempt does not change: login, no such database, no permission."""
_LOGIN_REFUSED = (
    "authentication",
    "does not exist",
    "pg_hba.conf",
    "not permitted to log in",
    "permission denied",
)
_TRANSIENT = ("08", "40", "53", "55P03", "57", "58")
"""Connections, conflicts of transactions, resources, locks, shutdown and cancellation, the system."""


def require_psycopg() -> None:
    """Raise MissingExtraError if psycopg is not installed."""
    try:
        import_module("psycopg")
    except ImportError as missing:
        raise MissingExtraError(
            "PostgreSQL needs psycopg", action='install it with: pip install "lakestate[postgres]"'
        ) from missing


def place_of(dsn: str) -> str:
    """Where a connection string leads, without anything secret. Raises InvalidInputError.

    >>> place_of("postgresql://shop:s3cr3t@db.example.com/orders?sslmode=require")
    'postgresql://shop@db.example.com/orders'
    >>> place_of("host=db user=shop password=s3cr3t")
    'postgresql://shop@db'
    """
    found = _parameters(dsn)
    user, host = found.get("user"), found.get("host") or found.get("hostaddr") or found.get("service") or ""
    port, database = found.get("port"), found.get("dbname")
    at = f"{user}@" if user else ""
    shown = f"postgresql://{at}{host}{f':{port}' if port else ''}"
    return f"{shown}/{database}" if database else shown


def _parameters(dsn: str) -> dict[str, Any]:
    require_psycopg()
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # Neither the string nor the error of the library: both may show the password.
        raise InvalidInputError(
            "not a connection string of PostgreSQL",
            expected="postgresql://user@host:5432/database, or host=… dbname=… user=…",
        ) from None


@contextmanager
def connect(dsn: str) -> Iterator[Connection]:
    """A connection that commits each statement outside of `transaction()`. Errors are ours."""
    import psycopg

    given = _parameters(dsn)
    with translate_errors(dsn, "connect"):
        connection = psycopg.connect(
            **{"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "lakestate", **given},
            autocommit=True,
        )
    try:
        for name, value in _SESSION.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        yield connection
    finally:
        connection.close()


@contextmanager
def translate_errors(dsn: str, act: str, table: str | None = None) -> Iterator[None]:
    """Raise errors of psycopg as ours.

    What may succeed if it is repeated is StorageUnavailableError. Anything else is InvalidInputError: the
    server refuses it every time. `from None`, because the library's own error may show a password, or rows.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate_error(error, dsn, act, table) from None


def translate_error(error: Any, dsn: str, act: str, table: str | None = None) -> LakestateError:
    """An error of psycopg as one of ours."""
    import psycopg

    place = place_of(dsn)
    where = place if table is None else f"table {table} of {place}"
    state = error.sqlstate or ""
    # The primary message only: details repeat the values of rows.
    said = error.diag.message_primary or str(error)
    constraint = error.diag.constraint_name
    found = _redact(f"{said} (constraint {constraint})" if constraint else said, dsn)
    if state.startswith(_REFUSED) or (not state and _is_refusal(said)):
        return InvalidInputError(
            f"PostgreSQL does not permit to {act}",
            object_name=where,
            found=found,
            action="correct user, password, database or permissions, and start again",
        )
    if state.startswith(_TRANSIENT) or (not state and isinstance(error, psycopg.OperationalError)):
        return StorageUnavailableError(
            f"PostgreSQL does not answer: {act}",
            object_name=where,
            found=found,
            action="check that it runs and can be reached from here, and start again",
        )
    return InvalidInputError(f"PostgreSQL refuses to {act}", object_name=where, found=found)


def _is_refusal(said: str) -> bool:
    """Whether the server has answered that this login is wrong. libpq says so only in words."""
    return "FATAL" in said and any(words in said for words in _LOGIN_REFUSED)


def _redact(text: str, dsn: str) -> str:
    for name, value in _parameters(dsn).items():
        if name in _SECRETS and value:
            text = text.replace(str(value), "***")
    return " ".join(text.replace(dsn, "***").split())[:300]
