"""obstore tells failures in its text; these are texts as obstore 0.12 wrote them. boto3 tells codes."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from obstore import exceptions

from lakestate.errors import InvalidInputError, LakestateError, NotFoundError
from lakestate.storage.redaction import Redaction
from lakestate.storage.remote.errors import ConditionFailedError, translate_obstore_errors
from lakestate.storage.remote.s3_client import translate_boto_errors
from lakestate.storage.retry import Applied, TransientFault

HEAD = "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/x in 3ms - "
STATUS = HEAD + "Server returned non-2xx status code: {}: <Error><Code>Some</Code></Error>"
REFUSED = STATUS.format("400 Bad Request").replace("Some", "{}")
HTTP = (
    HEAD
    + "HTTP error: error sending request\n\nDebug source:\ninner: Http(\nHttpError {{\n  kind: {},\n {}}}"
)


def meaning(error: Exception) -> Exception:
    with pytest.raises(Exception) as caught, translate_obstore_errors("store/object", Redaction({})):
        raise error
    assert caught.value.__cause__ is None
    return caught.value


@pytest.mark.parametrize(
    ("text", "applied"),
    [
        (STATUS.format("503 Service Unavailable"), Applied.NO),
        (STATUS.format("429 Too Many Requests"), Applied.NO),
        (STATUS.format("408 Request Timeout"), Applied.NO),
        (STATUS.format("425 Too Early"), Applied.NO),
        (REFUSED.format("RequestTimeout"), Applied.NO),
        (REFUSED.format("BadDigest"), Applied.NO),
        (REFUSED.format("RequestTimeTooSkewed"), Applied.NO),
        (REFUSED.format("OperationAborted"), Applied.NO),
        (STATUS.format("500 Internal Server Error"), Applied.MAYBE),
        (STATUS.format("502 Bad Gateway"), Applied.MAYBE),
        (STATUS.format("504 Gateway Timeout"), Applied.MAYBE),
        (HTTP.format("Connect", "source: Os { code: 111, kind: ConnectionRefused }"), Applied.NO),
        (HTTP.format("Interrupted", "source: Os { code: 104, kind: ConnectionReset }"), Applied.MAYBE),
        (HTTP.format("Timeout", "source: TimedOut"), Applied.MAYBE),
        (HTTP.format("Request", ""), Applied.MAYBE),
        ("Generic S3 error: something nobody has seen", Applied.MAYBE),
    ],
)
def test_a_fault_that_may_pass_says_whether_it_may_have_acted(text: str, applied: Applied) -> None:
    found = meaning(exceptions.GenericError(text))
    assert isinstance(found, TransientFault)
    assert found.applied is applied


@pytest.mark.parametrize(
    "error",
    [
        exceptions.GenericError(STATUS.format("400 Bad Request")),
        exceptions.GenericError(REFUSED.format("InvalidRequest")),
        exceptions.GenericError(STATUS.format("301 Moved Permanently")),
        exceptions.GenericError(STATUS.format("405 Method Not Allowed")),
        exceptions.GenericError(STATUS.format("416 Range Not Satisfiable")),
        exceptions.GenericError("Generic InMemory error: Invalid range: Wanted range starting at 10"),
        exceptions.GenericError(HEAD + "HTTP error: builder error"),
        exceptions.GenericError("Generic S3 error: Missing AccessKeyId"),
        exceptions.PermissionDeniedError(STATUS.format("403 Forbidden")),
        exceptions.UnauthenticatedError(STATUS.format("401 Unauthorized")),
        exceptions.NotSupportedError("not supported"),
        exceptions.InvalidPathError("bad path"),
    ],
)
def test_a_fault_that_will_not_pass_is_not_tried_again(error: Exception) -> None:
    found = meaning(error)
    assert isinstance(found, InvalidInputError)
    assert isinstance(found, LakestateError)
    assert found.object_name == "store/object"


@pytest.mark.parametrize(
    "error",
    [
        exceptions.AlreadyExistsError(STATUS.format("412 Precondition Failed")),
        exceptions.AlreadyExistsError(STATUS.format("409 Conflict")),
        exceptions.PreconditionError(STATUS.format("412 Precondition Failed")),
    ],
)
def test_a_condition_that_did_not_hold_is_distinguished(error: Exception) -> None:
    assert type(meaning(error)) is ConditionFailedError


def test_a_missing_bucket_is_distinguished_from_a_missing_object() -> None:
    missing = meaning(FileNotFoundError("not found: 404: <Error><Code>NoSuchKey</Code></Error>"))
    bucket = meaning(FileNotFoundError("not found: 404: <Error><Code>NoSuchBucket</Code></Error>"))
    assert isinstance(missing, NotFoundError)
    assert isinstance(bucket, NotFoundError)
    assert (missing.summary, bucket.summary) == ("no such object", "no such bucket")


def refusal(status: int, code: str) -> ClientError:
    said = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(said, "UploadPart")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "applied"),
    [
        (refusal(400, "RequestTimeout"), Applied.NO),
        (refusal(400, "BadDigest"), Applied.NO),
        (refusal(403, "RequestTimeTooSkewed"), Applied.NO),
        (refusal(409, "OperationAborted"), Applied.NO),
        (refusal(503, "SlowDown"), Applied.NO),
        (refusal(500, "InternalError"), Applied.MAYBE),
        (refusal(200, "RequestTimeout"), Applied.MAYBE),
    ],
)
def test_a_fault_of_an_upload_that_may_pass_says_whether_it_may_have_acted(
    error: ClientError, applied: Applied
) -> None:
    with pytest.raises(TransientFault) as caught, translate_boto_errors("store/object", Redaction({})):
        raise error
    assert caught.value.applied is applied


@pytest.mark.parametrize("code", ["InvalidRequest", "InvalidPart"])
def test_an_upload_that_is_refused_for_good_is_not_tried_again(code: str) -> None:
    with pytest.raises(InvalidInputError), translate_boto_errors("store/object", Redaction({})):
        raise refusal(400, code)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STATUS.format("403 Forbidden"), "access denied: store/object; .*check the credentials"),
        (
            STATUS.format("404 Not Found").replace("Some", "NoSuchBucket"),
            "no such bucket: store/object; create the bucket, or correct the URL",
        ),
        (
            STATUS.format("403 Forbidden").replace("127.0.0.1:1/b/x", "169.254.169.254/latest/api/token"),
            "no credentials: store/object; .*pass them as options or set the environment",
        ),
    ],
)
def test_a_listing_that_is_refused_says_what_to_do(text: str, told: str) -> None:
    """obstore has exceptions of their own for single objects, and none for listings."""
    with pytest.raises(LakestateError, match=told):
        raise meaning(exceptions.GenericError(text))
