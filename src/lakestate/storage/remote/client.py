"""Single operations on the keys of a remote bucket, with our values and errors, retried on faults.

Does not check paths: `ObstoreStore` does that, and multipart parts are kept under keys that no path
reaches.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import obstore

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.redaction import Redaction
from lakestate.storage.remote.conditional import ObservedObject
from lakestate.storage.remote.download import Download
from lakestate.storage.remote.errors import ConditionFailedError, translate_obstore_errors
from lakestate.storage.remote.failure_text import parse_failure
from lakestate.storage.remote.location import prefix_of
from lakestate.storage.remote.obstore_client import client_of, retrying_client_of
from lakestate.storage.retry import Applied, Retrier, TransientFault, no_progress
from lakestate.storage.spans import cut_span, merge_spans
from lakestate.storage.store import ByteRange, Data, ObjectInfo, StoredObject, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from obstore import ObjectMeta, PutResult, UpdateVersion

    from lakestate.config import StoreConfig
    from lakestate.storage.remote.obstore_client import RemoteClientStore

Answer = TypeVar("Answer")

WRITE_ID = "lakestatewriteid"
"""The metadata entry that holds a write id. Azure accepts no hyphen, some proxies no underscore."""

SINGLE_PUT_BYTES_MAX = 64 << 20
"""Larger objects are uploaded in parts, so that each part has its own timeout."""

PART_BYTES = 16 << 20
PARTS_IN_FLIGHT_MAX = 4
DELETE_BATCH = 1000
LIST_BATCH = 1000


class RemoteClient:
    """The objects of one bucket below one prefix."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._client = client_of(config)
        self._prefix = prefix_of(config)
        self._redaction = Redaction(config.options)
        # Google numbers its writes, and a condition must use that number. Elsewhere the e-tag is the
        # only version that listings return too.
        self._version_field = "version" if urlsplit(config.url).scheme == "gs" else "e_tag"
        self.url = config.url.rstrip("/")
        self.retrier = Retrier(config.retry)

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object. The time is this machine's: reading the store's would cost a request."""
        octets = memoryview(data).cast("B")
        if octets.nbytes > SINGLE_PUT_BYTES_MAX:
            result = self._put_in_parts(path, octets)
        else:
            key = self._key(path)
            result = self._retry(path, lambda: obstore.put(self._client, key, octets, use_multipart=False))
        return ObjectInfo(path, octets.nbytes, time.time_ns() // 1_000_000, self._version(result))

    def get(self, path: str) -> StoredObject:
        """Read the whole object, for as long as bytes keep arriving."""
        download = self._download(path, None)
        return StoredObject(download.data(), self._version(download.meta))

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Read several ranges. Neighbouring ranges share a request."""
        merged = merge_spans(spans)
        found = map_in_parallel(lambda span: self._download(path, span).data(), merged)
        fetched = list(zip(merged, found, strict=True))
        return [cut_span(self.name(path), span, fetched) for span in spans]

    def head(self, path: str) -> ObjectInfo:
        """Describe the object."""
        return self._info(self._retry(path, lambda: obstore.head(self._client, self._key(path))))

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Describe every object whose path begins with the prefix, in order of path.

        The whole listing is collected and sorted, because SeaweedFS, for one, lists `a/b` before `a-b`.
        """
        begin = f"{self._prefix}{prefix}"
        folder = begin.rpartition("/")[0]
        metas: list[ObjectMeta] = []

        def attempt() -> None:
            metas.clear()
            for page in obstore.list(self._repeating, folder or None, chunk_size=LIST_BATCH):
                metas.extend(page)

        self._retry(prefix, attempt, lambda: len(metas))
        infos = (self._info(meta) for meta in metas if meta["path"].startswith(begin))
        return sorted(infos, key=lambda info: info.path)

    def list_folders(self, folder: str) -> Sequence[str]:
        """The names of the folders directly below a folder, in order."""
        parent = f"{self._prefix}{folder}"
        found = self._retry(
            folder, lambda: obstore.list_with_delimiter(self._repeating, parent.rstrip("/") or None)
        )
        return sorted(path.rstrip("/").removeprefix(parent) for path in found["common_prefixes"])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete the objects. Deleting one that does not exist succeeds."""
        for first in range(0, len(paths), DELETE_BATCH):
            batch = paths[first : first + DELETE_BATCH]
            try:
                self._delete_batch(batch)
            except NotFoundError:
                # Google and Azure fail at the first missing object, and may not delete the rest.
                for path in batch:
                    self._delete_one(path)

    def copy(self, source: str, target: str) -> None:
        """Copy on the server."""
        self._retry(source, lambda: obstore.copy(self._client, self._key(source), self._key(target)))

    def write_once(self, path: str, data: Data, write_id: str, expected: Version | None) -> Version:
        """One attempt of a conditional write."""
        with translate_obstore_errors(self.name(path), self._redaction):
            result = obstore.put(
                self._client,
                self._key(path),
                data,
                mode="create" if expected is None else self._update_condition(expected),
                attributes={WRITE_ID: write_id},
                use_multipart=False,
            )
        return self._version(result)

    def look_once(self, path: str) -> ObservedObject | None:
        """One attempt to read an object together with its write id."""
        try:
            with translate_obstore_errors(self.name(path), self._redaction):
                return self._read(path)
        except NotFoundError:
            return None

    def name(self, path: str) -> str:
        """The object's name for display."""
        return f"{self.url}/{path}"

    @cached_property
    def _repeating(self) -> RemoteClientStore:
        return retrying_client_of(self._config)

    def _put_in_parts(self, path: str, octets: memoryview) -> PutResult:
        sent = 0

        def parts() -> Iterator[memoryview]:
            nonlocal sent
            for first in range(0, octets.nbytes, PART_BYTES):
                yield octets[first : first + PART_BYTES]
                sent = first

        def attempt() -> PutResult:
            try:
                return obstore.put(
                    self._repeating,
                    self._key(path),
                    parts(),
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT_MAX,
                )
            except FileNotFoundError as error:
                if parse_failure(error).code != "NoSuchUpload":
                    raise
                # The answer to completing was lost, and completing again finds no upload.
                raise TransientFault("the upload was completed or aborted", Applied.MAYBE) from None

        return self._retry(path, attempt, lambda: sent)

    def _download(self, path: str, span: ByteRange | None) -> Download:
        download = Download(self._client, self._key(path), span)
        self._retry(path, download.attempt, lambda: download.arrived)
        return download

    def _read(self, path: str) -> ObservedObject:
        result = obstore.get(self._client, self._key(path))
        stored = StoredObject(result.bytes().to_bytes(), self._version(result.meta))
        return ObservedObject(stored, result.attributes.get(WRITE_ID))

    def _delete_batch(self, batch: Sequence[str]) -> None:
        keys = [self._key(path) for path in batch]
        self._retry(batch[0], lambda: obstore.delete(self._client, keys))

    def _delete_one(self, path: str) -> None:
        try:
            self._retry(path, lambda: obstore.delete(self._client, self._key(path)))
        except NotFoundError:
            return

    def _retry(
        self, path: str, attempt: Callable[[], Answer], progress: Callable[[], int] = no_progress
    ) -> Answer:
        def attempt_translated() -> Answer:
            try:
                with translate_obstore_errors(self.name(path), self._redaction):
                    return attempt()
            except ConditionFailedError as error:
                # No condition was set: the bucket itself is being modified (409).
                raise TransientFault(str(error), Applied.NO) from None

        return self.retrier.run(attempt_translated, self.name(path), progress)

    def _key(self, path: str) -> str:
        return self._prefix + path

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        modified_ms = int(meta["last_modified"].timestamp() * 1000)
        path = meta["path"].removeprefix(self._prefix)
        return ObjectInfo(path, meta["size"], modified_ms, self._version(meta))

    def _version(self, described: ObjectMeta | PutResult) -> Version:
        token = described["version"] if self._version_field == "version" else described["e_tag"]
        if token is None:
            raise InvalidInputError(
                "the store does not name the versions of its objects",
                object_name=self.url,
                action="use a store that returns entity tags",
            )
        return Version(token)

    def _update_condition(self, expected: Version) -> UpdateVersion:
        if self._version_field == "version":
            return {"version": expected.token}
        return {"e_tag": expected.token}
