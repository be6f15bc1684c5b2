"""The location of a remote store: bucket, prefix and endpoint, from its configuration. No I/O."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakestate.errors import InvalidInputError
from lakestate.storage.object_path import require_path

if TYPE_CHECKING:
    from lakestate.config import StoreConfig


def bucket_of(config: StoreConfig) -> str:
    """The bucket or container that the URL names."""
    bucket = urlsplit(config.url).netloc
    if not bucket:
        expected = f"{urlsplit(config.url).scheme}://name/prefix"
        raise InvalidInputError("the URL names no bucket", object_name=config.url, expected=expected)
    return bucket


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
