"""Opens the store at a URL.

Each back end is imported only when its scheme is used, so local files need no client library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakestate.config import AZURE_SCHEMES, StoreConfig
from lakestate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakestate.storage.store import ObjectStore

SCHEMES = ("file", "s3", "gs", "az", *AZURE_SCHEMES, "memory")


def open_store(where: StoreConfig | str | Path, options: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at a URL or a local path. Nothing is contacted before the first operation.

    >>> store = open_store("memory://example")
    >>> store.create("greeting.txt", b"hello")
    Created(version=Version(token='"0"'))
    >>> store.get("greeting.txt").data
    b'hello'
    """
    config = _config(where, options)
    scheme, separator, _ = config.url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidInputError(
            "no store for this URL",
            object_name=config.url,
            expected=", ".join(f"{known}://" for known in SCHEMES),
        )
    if scheme == "file":
        from lakestate.storage.local.store import LocalStore

        return LocalStore(config)
    from lakestate.storage.remote.store import ObstoreStore

    return ObstoreStore(config)


def _config(where: StoreConfig | str | Path, options: Mapping[str, str] | None) -> StoreConfig:
    if not isinstance(where, StoreConfig):
        return StoreConfig(where, options or {})
    if options:
        return StoreConfig(where.url, {**where.options, **options}, where.retry)
    return where
