"""Creates botocore's S3 client from the configuration of a store, and translates its errors.

Only multipart uploads need it: those of obstore end with the process that started them.
"""

from __future__ import annotations

import functools
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from lakestate.errors import InvalidInputError, MissingExtraError, NotFoundError
from lakestate.storage.remote.errors import is_not_applied
from lakestate.storage.remote.location import endpoint_of
from lakestate.storage.remote.obstore_client import CONNECT_TIMEOUT_MS
from lakestate.storage.retry import Applied, TransientFault

try:
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectTimeoutError,
        EndpointConnectionError,
        HTTPClientError,
        NoCredentialsError,
    )
    from botocore.loaders import Loader, create_loader
    from botocore.session import Session
except ImportError as error:
    raise MissingExtraError(
        "multipart uploads on S3 need boto3", action="pip install 'lakestate[s3]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

    from lakestate.config import StoreConfig
    from lakestate.storage.redaction import Redaction

_NOT_SENT = (EndpointConnectionError, ConnectTimeoutError)
_TRUE = ("true", "1", "yes", "on")
_MISSING = {"NoSuchUpload", "NoSuchKey", "NoSuchBucket", "404", "NotFound"}
_LOGS_REQUESTS = ("botocore.auth", "botocore.endpoint", "botocore.httpsession", "botocore.awsrequest")


def s3_client(config: StoreConfig) -> S3Client:
    """A client that attempts every request once. Retries are ours."""
    _silence_request_logs()
    options = {name.removeprefix("aws_"): value for name, value in config.options.items()}
    settings = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=CONNECT_TIMEOUT_MS / 1000,
        read_timeout=config.retry.attempt_timeout_ms / 1000,
        max_pool_connections=32,
        signature_version=UNSIGNED if _is_on(options, "skip_signature") else "s3v4",
        s3={"addressing_style": _addressing_style(config, options)},
        # Stores with an older S3 interface refuse the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = _session().create_client(
        "s3",
        endpoint_url=endpoint_of(config),
        region_name=options.get("region") or options.get("default_region") or None,
        aws_access_key_id=options.get("access_key_id"),
        aws_secret_access_key=options.get("secret_access_key"),
        aws_session_token=options.get("session_token") or options.get("token"),
        verify=False if _is_on(options, "allow_invalid_certificates") else None,
        config=settings,
    )
    return cast("S3Client", client)


def _session() -> Session:
    # Every client has its own session, because a session keeps the credentials of the environment,
    # which may change. Only the service description is shared: it takes a quarter of a second to read.
    session = Session()
    session.register_component("data_loader", _service_descriptions())
    return session


@functools.cache
def _service_descriptions() -> Loader:
    return create_loader()


def encryption_of(config: StoreConfig) -> dict[str, Any]:
    """The encryption parameters for starting an upload. They apply to the object, not to a part."""
    options = {name.removeprefix("aws_"): value for name, value in config.options.items()}
    parameters = {
        "ServerSideEncryption": options.get("server_side_encryption"),
        "SSEKMSKeyId": options.get("sse_kms_key_id"),
    }
    return {name: value for name, value in parameters.items() if value}


@contextmanager
def translate_boto_errors(object_name: str, redaction: Redaction) -> Iterator[None]:
    """Translate what botocore raises. The cause is dropped: its text may contain credentials."""
    try:
        yield
    except ClientError as error:
        raise _translation(error, object_name, redaction.reason(str(error))) from None
    except NoCredentialsError:
        action = "pass them as options or set the environment"
        raise InvalidInputError("no credentials", object_name=object_name, action=action) from None
    except _NOT_SENT as error:
        raise TransientFault(redaction.reason(str(error)), Applied.NO) from None
    except HTTPClientError as error:
        raise TransientFault(redaction.reason(str(error)), Applied.MAYBE) from None
    except BotoCoreError as error:
        reason = redaction.reason(str(error))
        raise InvalidInputError("no request can be made", object_name=object_name, found=reason) from None


def _translation(error: ClientError, object_name: str, reason: str) -> Exception:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response.get("Error", {}).get("Code", "")
    reason = f"HTTP status {status}: {reason}"
    if code in _MISSING:
        return NotFoundError("no such upload or object", object_name=object_name, found=code)
    if is_not_applied(status, code):
        return TransientFault(reason, Applied.NO)
    if 300 <= status < 500:
        return InvalidInputError("the store refused the request", object_name=object_name, found=reason)
    # Completing may answer 200 with an error inside: S3 started to act and then failed.
    return TransientFault(reason, Applied.MAYBE)


def _addressing_style(config: StoreConfig, options: dict[str, str]) -> Literal["auto", "path", "virtual"]:
    if _is_on(options, "virtual_hosted_style_request"):
        return "virtual"
    return "auto" if endpoint_of(config) is None else "path"


def _is_on(options: dict[str, str], name: str) -> bool:
    return str(options.get(name, "")).lower() in _TRUE


def _silence_request_logs() -> None:
    # At debug level these log whole requests, including the access key and the session token.
    for name in _LOGS_REQUESTS:
        logging.getLogger(name).setLevel(logging.INFO)
