"""Credentials appear in no repr, log, error or traceback, whatever goes wrong."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

import pytest

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.errors import InvalidInputError, LakestateError
from lakestate.storage import ObjectStore, UploadedPart, UploadId, Version, open_store
from lakestate.storage.redaction import Redaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakestate.testing.s3_server import S3Server

HASTY = RetryPolicy(deadline_ms=50, attempt_timeout_ms=2000)
KEY, SECRET, TOKEN = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMIK7MDENGbPxRfiCY", "FwoGZXIvYXdzEBYaDH7"
SECRETS = (KEY, SECRET, TOKEN)


def options(endpoint: str) -> dict[str, str]:
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "session_token": TOKEN,
    }


@pytest.fixture(params=["refused", "unreachable", "no host", "not http", "environment"])
def config(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreConfig:
    if request.param == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
        server: S3Server = request.getfixturevalue("s3_server")
        return StoreConfig("s3://bucket/x", {"endpoint": server.endpoint, "region": "us-east-1"}, HASTY)
    if request.param == "refused":
        server = request.getfixturevalue("s3_server")
        return StoreConfig(f"s3://{server.bucket}/x", options(server.endpoint), HASTY)
    endpoints = {"unreachable": "http://127.0.0.1:9", "no host": "http://h.invalid", "not http": "ftp://h"}
    return StoreConfig("s3://bucket/x", options(endpoints[request.param]), HASTY)


def failures(store: ObjectStore) -> Iterator[LakestateError]:
    upload = UploadId("object", "upload")
    for attempt in (
        lambda: store.put("object", b"data"),
        lambda: store.get("object"),
        lambda: store.head("object"),
        lambda: list(store.list()),
        lambda: store.delete_many(["object"]),
        lambda: store.create("object", b"data"),
        lambda: store.compare_and_swap("object", b"data", Version('"x"')),
        lambda: store.copy("object", "other"),
        lambda: store.uploads.start("object"),
        lambda: store.uploads.put_part(upload, 1, b"data"),
        lambda: store.uploads.complete(upload, [UploadedPart(1, 4, "x")]),
        lambda: store.uploads.abort(upload),
        lambda: list(store.uploads.list_dangling()),
    ):
        try:
            attempt()
        except LakestateError as error:
            yield error


def test_no_error_log_or_repr_shows_a_credential(
    config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_store(config)
    found = list(failures(store))
    assert found, "nothing failed"
    shown = [repr(config), str(config), repr(store), store.url]
    for error in found:
        shown += [str(error), repr(error), *traceback.format_exception(error)]
    shown += [record.getMessage() for record in caplog.records]
    for text in shown:
        assert not [secret for secret in SECRETS if secret in text], text


def test_a_working_store_logs_no_credential(s3_server: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_store(s3_server.store_config("credentials"))
    store.put("object", b"data")
    upload = store.uploads.start("upload")
    store.uploads.complete(upload, [store.uploads.put_part(upload, 1, b"data")])
    secrets = (s3_server.credentials.access_key_id, s3_server.credentials.secret_access_key)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert not [secret for secret in secrets if secret in logged]
    assert not [secret for secret in secrets if secret in repr(s3_server.credentials)]


def test_a_wrong_credential_is_refused_at_once(s3_server: S3Server) -> None:
    config = StoreConfig(f"s3://{s3_server.bucket}", options(s3_server.endpoint))
    with pytest.raises(InvalidInputError, match="access denied"):
        open_store(config).get("object")
    with pytest.raises(InvalidInputError, match="refused"):
        open_store(config).uploads.start("object")


def test_an_unknown_option_is_named_without_its_value() -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store("s3://bucket", {"regoin": SECRET, "region": "x", "secret_key": SECRET})
    assert caught.value.found == "regoin, secret_key"
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_option_with_a_bad_value_does_not_show_it() -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store("az://container", {"account_name": "a", "account_key": f"not base64 {SECRET}"})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("plain words", "plain words"),
        ("two\n  lines", "two lines"),
        (f"PUT https://h/b/k?X-Amz-Signature={TOKEN}&x=1 failed", "PUT https://h/b/k failed"),
        ("short\n\nDebug source:\nsecret things", "short"),
        (f"key {KEY} is bad", "key *** is bad"),
        (
            f"status 403: <?xml?><Error><Code>Bad</Code><Message>No.</Message><Signed>{KEY}</Signed>",
            "status 403: Bad: No.",
        ),
        ("x" * 1000, "x" * 300),
    ],
)
def test_a_reason_is_short_and_says_nothing_secret(text: str, reason: str) -> None:
    assert Redaction({"access_key_id": KEY}).reason(text) == reason
