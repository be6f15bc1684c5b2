"""The location of a remote store: bucket, prefix and endpoint, from its configuration. No I/O."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakestate.errors import InvalidInputError
from lakestate.storage.object_path import require_path

if TYPE_CHECKING:
    from lakestate.config import StoreConfig


_AZURE_DOMAINS = ("dfs.core.windows.net", "blob.core.windows.net")


def bucket_of(config: StoreConfig) -> str:
    """The bucket or container that the URL names."""
    # On Azure it may be `container@account.dfs.core.windows.net`.
    bucket = urlsplit(config.url).netloc.partition("@")[0]
    if not bucket:
        expected = f"{urlsplit(config.url).scheme}://name/prefix"
        raise InvalidInputError("the URL names no bucket", object_name=config.url, expected=expected)
    return bucket


def azure_account_of(config: StoreConfig) -> str | None:
    """The Azure account that the URL names, as in `abfss://container@account.dfs.core.windows.net/x`."""
    _, names_account, host = urlsplit(config.url).netloc.partition("@")
    if not names_account:
        return None
    account, _, domain = host.partition(".")
    given = config.options.get("account_name") or config.options.get("azure_storage_account_name")
    if domain not in _AZURE_DOMAINS or given not in (None, account):
        raise InvalidInputError(
            "the URL names an account that cannot be reached this way",
            object_name=config.url,
            found=host if given is None else f"{host}, and the option account_name {given}",
            expected=" or ".join(f"<account>.{known}" for known in _AZURE_DOMAINS),
            action="use az://container/path, with the options account_name and endpoint",
        )
    return account


def prefix_of(config: StoreConfig) -> str:
    """The beginning of every key of the store: empty, or a path that ends with a slash."""
    path = unquote(urlsplit(config.url).path).strip("/")
    return f"{require_path(path)}/" if path else ""


def endpoint_of(config: StoreConfig) -> str | None:
    """The S3 endpoint, from the options or from the environment."""
    names = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
    given = (config.options.get(name) for name in names)
    ambient = (os.environ.get(name.upper()) for name in ("AWS_ENDPOINT_URL_S3", *names[2:]))
    return next(filter(None, (*given, *ambient)), None)
