"""Creates obstore's clients for S3, Google, Azure or memory from a configuration.

obstore's own retries are off, because it would repeat a conditional write without telling us that an
answer was lost. They are on only for work made of many requests that are harmless to repeat.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lakestate.errors import InvalidInputError
from lakestate.storage.redaction import Redaction
from lakestate.storage.remote.location import azure_account_of, bucket_of, endpoint_of

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

    from lakestate.config import StoreConfig

RemoteClientStore = S3Store | GCSStore | AzureStore | MemoryStore

CONNECT_TIMEOUT_MS = 5_000
_RETRIES_MAX = 1_000
"""Never reached: the deadline comes first."""

_memories: dict[str, MemoryStore] = {}
_memories_lock = threading.Lock()


def client_of(config: StoreConfig) -> RemoteClientStore:
    """A client for the bucket that the URL names. It attempts every request once."""
    return _client_of(config, {"max_retries": 0})


def retrying_client_of(config: StoreConfig) -> RemoteClientStore:
    """A client that retries every request, each within the deadline.

    A listing consists of pages and a large put of parts, and obstore offers no way to repeat one page
    or part. Without this, a single fault would discard all of them.
    """
    retry = config.retry
    return _client_of(
        config,
        {
            "max_retries": _RETRIES_MAX,
            "retry_timeout": timedelta(milliseconds=retry.deadline_ms),
            "backoff": {
                "init_backoff": timedelta(milliseconds=retry.backoff_first_ms),
                "max_backoff": timedelta(milliseconds=retry.backoff_max_ms),
                "base": 2,
            },
        },
    )


def _client_of(config: StoreConfig, retries: RetryConfig) -> RemoteClientStore:
    scheme = urlsplit(config.url).scheme
    if scheme == "memory":
        return _memory(config)
    store: Any = {"s3": S3Store, "gs": GCSStore}.get(scheme, AzureStore)
    account = azure_account_of(config) if store is AzureStore else None
    try:
        client: RemoteClientStore = store(
            bucket_of(config),
            config=dict(config.options) | ({} if account is None else {"account_name": account}),
            client_options=_client_options(config),
            retry_config=retries,
        )
    except UnknownConfigurationKeyError:
        raise _unknown_options_error(config, store) from None
    except (BaseError, ValueError, TypeError) as error:
        reason = Redaction(config.options).reason(str(error))
        raise InvalidInputError("the store cannot be opened", object_name=config.url, found=reason) from None
    return client


def _memory(config: StoreConfig) -> MemoryStore:
    if config.options:
        names = ", ".join(sorted(config.options))
        raise InvalidInputError("memory takes no options", object_name=config.url, found=names)
    with _memories_lock:
        return _memories.setdefault(bucket_of(config), MemoryStore())


def _client_options(config: StoreConfig) -> ClientConfig:
    # The read timeout restarts with every piece of an answer. The other one does not: it cuts off a
    # transfer that makes progress, and `Download` requests the rest.
    options: ClientConfig = {
        "connect_timeout": timedelta(milliseconds=CONNECT_TIMEOUT_MS),
        "read_timeout": timedelta(milliseconds=config.retry.attempt_timeout_ms),
        "timeout": timedelta(milliseconds=max(config.retry.deadline_ms, config.retry.attempt_timeout_ms)),
    }
    if (endpoint_of(config) or "").startswith("http://"):
        options["allow_http"] = True
    return options


def _unknown_options_error(config: StoreConfig, store: Any) -> InvalidInputError:
    unknown = [name for name in sorted(config.options) if not _is_known(store, name)]
    return InvalidInputError(
        "unknown options",
        object_name=config.url,
        found=", ".join(unknown),
        expected=f"settings of obstore's {store.__name__}",
    )


def _is_known(store: Any, name: str) -> bool:
    try:
        store("bucket", config={name: ""})
    except UnknownConfigurationKeyError:
        return False
    except (BaseError, ValueError, TypeError):
        return True
    return True
