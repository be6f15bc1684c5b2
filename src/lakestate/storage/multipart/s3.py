"""S3's own multipart uploads, through botocore.

An upload id is valid in every process until the upload is completed or aborted. If the answer to
completing is lost, the object itself shows what happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lakestate.errors import LakestateError, NotFoundError, OutcomeUnknownError
from lakestate.storage.multipart.parts import (
    check_parts,
    missing_upload_error,
    require_completed_object,
    require_part_number,
    require_whole_object,
)
from lakestate.storage.object_path import require_path, require_prefix
from lakestate.storage.redaction import Redaction
from lakestate.storage.remote.location import bucket_of, prefix_of
from lakestate.storage.remote.s3_client import encryption_of, s3_client, translate_boto_errors
from lakestate.storage.retry import Applied, Retrier, TransientFault, no_progress
from lakestate.storage.store import DanglingUpload, Data, ObjectInfo, UploadedPart, UploadId, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, MultipartUploadTypeDef, PartTypeDef

    from lakestate.config import StoreConfig

Answer = TypeVar("Answer")


class S3Uploads:
    """See `MultipartUploads` for what each method promises."""

    part_bytes_min = 5 << 20

    def __init__(self, config: StoreConfig) -> None:
        self._client = s3_client(config)
        self._bucket = bucket_of(config)
        self._prefix = prefix_of(config)
        self._encryption = encryption_of(config)
        self._redaction = Redaction(config.options)
        self._retrier = Retrier(config.retry)
        self._url = config.url.rstrip("/")

    def start(self, path: str) -> UploadId:
        """Start an upload. If the answer is lost, an empty upload remains until it is cleaned up."""
        key = self._key(require_path(path))
        answer = self._retry(
            path,
            lambda: self._client.create_multipart_upload(Bucket=self._bucket, Key=key, **self._encryption),
        )
        return UploadId(path, answer["UploadId"])

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        """Upload one part. Repeating this is harmless."""
        # botocore accepts only bytes and files.
        body = data if isinstance(data, bytes) else bytes(data)
        require_part_number(number)
        answer = self._retry_for_upload(
            upload,
            lambda: self._client.upload_part(
                Bucket=self._bucket,
                Key=self._key(upload.path),
                UploadId=upload.token,
                PartNumber=number,
                Body=body,
            ),
        )
        return UploadedPart(number, len(body), answer["ETag"])

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        """The finished parts, by number.

        SeaweedFS keeps a replaced part beside its successor. The newer one is listed, with the
        one-second precision of S3; a receipt always identifies its own bytes.
        """
        pages = self._client.get_paginator("list_parts")
        parts: list[PartTypeDef] = []

        def attempt() -> None:
            parts.clear()
            found = pages.paginate(Bucket=self._bucket, Key=self._key(upload.path), UploadId=upload.token)
            for page in found:
                parts.extend(page.get("Parts", []))

        self._retry_for_upload(upload, attempt, lambda: len(parts))
        oldest_first = sorted(parts, key=lambda part: part["LastModified"])
        newest = {part["PartNumber"]: part for part in oldest_first}
        return tuple(
            UploadedPart(number, part["Size"], part["ETag"]) for number, part in sorted(newest.items())
        )

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """Make the object from the parts. If the answer is lost, check whether the object exists."""
        name = self._name(require_path(upload.path))
        check_parts(name, parts)
        lost: list[TransientFault] = []
        try:
            self._retrier.run(lambda: self._complete_once(upload, parts, lost), name)
        except NotFoundError:
            return require_completed_object(name, self._find(upload.path), parts)
        except LakestateError as error:
            if not lost:
                raise
            return self._resolve_lost_answer(upload, parts, error)
        return require_whole_object(name, self._head(upload.path), parts)

    def abort(self, upload: UploadId) -> None:
        """Discard the parts. Repeating this is harmless."""
        try:
            self._retry_for_upload(
                upload,
                lambda: self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=self._key(upload.path), UploadId=upload.token
                ),
            )
        except NotFoundError:
            return

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        """The uploads that were neither completed nor aborted, in order of path.

        This includes uploads that other processes are working on: wait until they are old.
        """
        pages = self._client.get_paginator("list_multipart_uploads")
        begin = self._key(require_prefix(prefix))
        uploads: list[MultipartUploadTypeDef] = []

        def attempt() -> None:
            uploads.clear()
            for page in pages.paginate(Bucket=self._bucket, Prefix=begin):
                uploads.extend(page.get("Uploads", []))

        self._retry(prefix, attempt, lambda: len(uploads))
        found = [
            DanglingUpload(
                UploadId(each["Key"].removeprefix(self._prefix), each["UploadId"]),
                _milliseconds(each["Initiated"]),
            )
            for each in uploads
            if each["Key"].startswith(begin)
        ]
        return iter(sorted(found, key=lambda each: (each.upload.path, each.started_ms, each.upload.token)))

    def _complete_once(
        self, upload: UploadId, parts: Sequence[UploadedPart], lost: list[TransientFault]
    ) -> None:
        receipts: list[CompletedPartTypeDef] = [
            {"PartNumber": part.number, "ETag": part.token} for part in parts
        ]
        try:
            with translate_boto_errors(self._name(upload.path), self._redaction):
                self._client.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=self._key(upload.path),
                    UploadId=upload.token,
                    MultipartUpload={"Parts": receipts},
                )
        except TransientFault as fault:
            if fault.applied is Applied.MAYBE:
                lost.append(fault)
            raise

    def _resolve_lost_answer(
        self, upload: UploadId, parts: Sequence[UploadedPart], error: LakestateError
    ) -> ObjectInfo:
        name = self._name(upload.path)
        try:
            there = self._find(upload.path)
        except LakestateError:
            there = None
        if there is None:
            raise OutcomeUnknownError(
                "the answer to completing an upload was lost",
                object_name=name,
                found=error.found or error.summary,
                action="complete it again later",
            ) from None
        return require_whole_object(name, there, parts)

    def _find(self, path: str) -> ObjectInfo | None:
        try:
            return self._head(path)
        except NotFoundError:
            return None

    def _head(self, path: str) -> ObjectInfo:
        found = self._retry(path, lambda: self._client.head_object(Bucket=self._bucket, Key=self._key(path)))
        modified_ms = _milliseconds(found["LastModified"])
        return ObjectInfo(path, found["ContentLength"], modified_ms, Version(found["ETag"]))

    def _retry_for_upload(
        self, upload: UploadId, attempt: Callable[[], Answer], progress: Callable[[], int] = no_progress
    ) -> Answer:
        require_path(upload.path)
        try:
            return self._retry(upload.path, attempt, progress)
        except NotFoundError:
            raise missing_upload_error(self._name(upload.path)) from None

    def _retry(
        self, path: str, attempt: Callable[[], Answer], progress: Callable[[], int] = no_progress
    ) -> Answer:
        def attempt_translated() -> Answer:
            with translate_boto_errors(self._name(path), self._redaction):
                return attempt()

        return self._retrier.run(attempt_translated, self._name(path), progress)

    def _key(self, path: str) -> str:
        return self._prefix + path

    def _name(self, path: str) -> str:
        return f"{self._url}/{path}"


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
