"""An Iceberg catalog as a value that can be sent to other processes, and opened once in each.

pyiceberg is imported only when a catalog is used: a pipeline without Iceberg does not need it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from lakestate.config import AZURE_SCHEMES
from lakestate.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG_FILE = "catalog.db"
_LOCK_TIMEOUT_S = 0.5
"""How long SQLite waits for a lock before the call fails, and is repeated as any other call of a catalog."""

_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class IcebergCatalog:
    """How to reach a catalog: its name, and its properties in pyiceberg.

    Picklable, and never shows a credential.

    >>> IcebergCatalog("prod", {"type": "rest", "uri": "https://catalog", "token": "s3cr3t"})
    IcebergCatalog('prod', properties=token, type, uri)
    """

    name: str = "lakestate"
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", dict(self.properties))

    def __repr__(self) -> str:
        return f"IcebergCatalog({self.name!r}, properties={', '.join(sorted(self.properties)) or 'none'})"

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.properties.items()))))

    @classmethod
    def sqlite(
        cls,
        warehouse: str | Path,
        *,
        file: str | Path | None = None,
        name: str = "lakestate",
        **properties: str,
    ) -> IcebergCatalog:
        """The embedded catalog: one SQLite file, in the warehouse unless `file` says otherwise.

        >>> IcebergCatalog.sqlite("file:///data/warehouse").properties["uri"]
        'sqlite:////data/warehouse/catalog.db?timeout=0.5'
        """
        warehouse = _absolute_location(warehouse)
        root = local_path(warehouse)
        if file is None and root is None:
            raise InvalidInputError(
                "an SQLite catalog is a local file, and the warehouse is not local",
                object_name=warehouse,
                action="give the path of the file with `file`, or configure a REST catalog",
            )
        path = Path(file) if file is not None else Path(root or "") / CATALOG_FILE
        shown = str(path).replace("%", "%25").replace("?", "%3F")
        uri = f"{_SQLITE}{shown}?timeout={_LOCK_TIMEOUT_S}"
        return cls(name, {"type": "sql", "uri": uri, "warehouse": warehouse, **properties})

    @classmethod
    def rest(cls, uri: str, *, name: str = "lakestate", **properties: str) -> IcebergCatalog:
        """A REST catalog.

        >>> IcebergCatalog.rest("https://catalog", warehouse="prod").properties["type"]
        'rest'
        """
        return cls(name, {"type": "rest", "uri": uri, **properties})

    @classmethod
    def of(cls, given: IcebergCatalog | Mapping[str, str] | str | Path) -> IcebergCatalog:
        """The catalog that a user gives: the warehouse of an embedded one, or properties.

        >>> IcebergCatalog.of({"name": "prod", "type": "rest", "uri": "https://catalog"}).name
        'prod'
        """
        if isinstance(given, IcebergCatalog):
            return given
        if isinstance(given, str | Path):
            return cls.sqlite(given)
        others = {key: value for key, value in given.items() if key != "name"}
        return cls(given.get("name", "lakestate"), others)

    @property
    def is_missing(self) -> bool:
        """Whether it is an SQLite file that does not exist yet; `load` would create it."""
        file = _sqlite_file(self)
        return file is not None and not file.exists()

    def load(self) -> Catalog:
        """The catalog, opened once in this process."""
        return _load_catalog(self, os.getpid())


def require_pyiceberg() -> None:
    """Raise MissingExtraError if pyiceberg is not installed."""
    try:
        import_module("pyiceberg.catalog")
    except ImportError as missing:
        raise MissingExtraError(
            "Iceberg tables need pyiceberg", action='install it with: pip install "lakestate[iceberg]"'
        ) from missing


def _absolute_location(location: str | Path) -> str:
    """The location as it is, or an absolute path for a relative one: other processes run elsewhere."""
    if isinstance(location, Path) or ":" not in location.partition("/")[0]:
        return str(Path(location).expanduser().absolute())
    return location


def local_path(location: str) -> str | None:
    """The path of a local location, or None if it is not local.

    pyiceberg takes locations literally, so nothing is unescaped.

    >>> local_path("file:///data/a%20b"), local_path("/data/x"), local_path("s3://bucket/x")
    ('/data/a%20b', '/data/x', None)
    """
    for prefix in ("file://", "file:"):
        if location.startswith(prefix):
            return location.removeprefix(prefix)
    return location if location.startswith("/") else None


def store_url(location: str) -> str:
    """The URL by which our stores reach a location.

    >>> store_url("file:///data/a%20b"), store_url("s3a://bucket/x")
    ('file:///data/a%2520b', 's3://bucket/x')
    >>> store_url("abfss://lake@acme.dfs.core.windows.net/a b")
    'abfss://lake@acme.dfs.core.windows.net/a%20b'
    """
    path = local_path(location)
    if path is not None:
        return f"file://{quote(path)}"
    scheme, _, rest = location.partition("://")
    bucket, slash, key = rest.partition("/")
    # Azure's `container@account` stands before the first slash.
    bucket = bucket if scheme in AZURE_SCHEMES else quote(bucket)
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{bucket}{slash}{quote(key)}"


# The process is part of the key: a connection must not be used on both sides of a fork.
@cache
def _load_catalog(catalog: IcebergCatalog, process: int) -> Catalog:
    require_pyiceberg()
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError

    file = _sqlite_file(catalog)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        return load_catalog(catalog.name, **catalog.properties)
    except NotInstalledError as missing:
        raise MissingExtraError(f"a package is missing for the Iceberg catalog: {missing}") from missing
    except ValueError as cause:
        if isinstance(cause, OSError):
            raise
        # Not chained: pyiceberg's message may hold all properties, credentials included.
        raise InvalidInputError(
            "no Iceberg catalog has these properties",
            object_name=repr(catalog),
            found=_mask_values(str(cause), catalog.properties),
            action="see pyiceberg's page on configuring catalogs",
        ) from None


def _sqlite_file(catalog: IcebergCatalog) -> Path | None:
    uri = catalog.properties.get("uri", "").partition("?")[0]
    return Path(unquote(uri.removeprefix(_SQLITE))) if uri.startswith(_SQLITE) else None


def _mask_values(text: str, properties: Mapping[str, str]) -> str:
    """A text without the values of properties, except the catalog's type."""
    for key, value in properties.items():
        if value and key != "type":
            text = text.replace(repr(value)[1:-1], "…").replace(value, "…")
    return text
