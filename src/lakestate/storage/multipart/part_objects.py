"""Multipart uploads made of hidden objects, for Google, Azure and memory.

Their own multipart uploads are not used. Completing reads all parts, joins them in memory and puts the
object. That moves every byte three times and needs memory for the whole file: correct, but not suited
to huge files.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

from lakestate.ambient import Ambient, SystemAmbient
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.storage.multipart.parts import (
    changed_part_error,
    check_parts,
    content_receipt,
    decode_upload_record,
    encode_upload_record,
    is_made_of,
    is_token,
    missing_upload_error,
    new_token,
    part_stem,
    record_name,
    require_completed_object,
    require_part_number,
)
from lakestate.storage.object_path import RESERVED, require_path, require_prefix
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.store import DanglingUpload, Data, ObjectInfo, StoredObject, UploadedPart, UploadId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_UPLOADS = f"{RESERVED}/uploads/"


class PartClient(Protocol):
    """Single operations on keys, including those that no path reaches."""

    def name(self, path: str) -> str:
        """The key's name for display."""
        ...

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object."""
        ...

    def get(self, path: str) -> StoredObject:
        """Read the object."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """Describe the object."""
        ...

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        """All objects whose path begins with the prefix."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete the objects. Deleting one that does not exist succeeds."""
        ...


class PartObjectUploads:
    """See `MultipartUploads` for what each method promises."""

    part_bytes_min = 1

    def __init__(self, client: PartClient, ambient: Ambient | None = None) -> None:
        self._client = client
        self._ambient = ambient or SystemAmbient()

    def start(self, path: str) -> UploadId:
        """Start an upload."""
        unique = hashlib.blake2b(self._ambient.new_id().encode(), digest_size=16).hexdigest()
        upload = UploadId(require_path(path), new_token(unique))
        record = encode_upload_record(path, self._ambient.now_ms())
        self._client.put(_record_path(upload.token), record)
        return upload

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        """Store one part as a separate object."""
        self._check_open(upload)
        path = _part_path(upload, require_part_number(number))
        info = self._client.put(path, data)
        try:
            self._check_open(upload)
        except NotFoundError:
            # The upload was completed or aborted meanwhile: nothing would ever remove the part.
            self._client.delete([path])
            raise
        return UploadedPart(number, info.size_bytes, content_receipt([data]))

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        """The finished parts, by number."""
        self._check_open(upload)
        found = [info.path for info in self._client.list(_folder(upload) + part_stem(upload.token))]
        return tuple(map_in_parallel(self._describe_part, found))

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """Join the parts into the object.

        Another driver, or this one before it was killed, may already have done so and removed some parts.
        """
        name = self._client.name(upload.path)
        check_parts(name, parts)
        try:
            self._check_open(upload)
            info = self._join(upload, parts)
        except NotFoundError:
            return require_completed_object(name, self._find(upload.path), parts)
        self.abort(upload)
        return info

    def abort(self, upload: UploadId) -> None:
        """Remove the parts, then the record: until then the upload can still be found."""
        _check_upload_id(upload, self._client.name(upload.path))
        record = _record_path(upload.token)
        paths = [info.path for info in self._client.list(_folder(upload)) if info.path != record]
        self._client.delete(paths)
        self._client.delete([record])

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        """The uploads that were neither completed nor aborted, in order of path."""
        require_prefix(prefix)
        paths = (info.path for info in self._client.list(_UPLOADS))
        tokens = [path.split("/")[-2] for path in paths if path == _record_path(path.split("/")[-2])]
        found = filter(None, map_in_parallel(self._find_upload, tokens))
        matching = [each for each in found if each.upload.path.startswith(prefix)]
        return iter(sorted(matching, key=lambda each: (each.upload.path, each.started_ms)))

    def _describe_part(self, path: str) -> UploadedPart:
        data = self._client.get(path).data
        return UploadedPart(int(path[-5:]), len(data), content_receipt([data]))

    def _join(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        found = map_in_parallel(lambda part: self._read_part(upload, part), parts)
        missing = next((part for part, data in zip(parts, found, strict=True) if data is None), None)
        if missing is None:
            return self._client.put(upload.path, b"".join(filter(None, found)))
        # Another process may have completed or aborted the upload in the meantime.
        self._check_open(upload)
        info = self._find(upload.path)
        if info is None or not is_made_of(self._client.get(upload.path).data, parts):
            raise changed_part_error(self._client.name(upload.path), missing)
        return info

    def _read_part(self, upload: UploadId, part: UploadedPart) -> bytes | None:
        try:
            data = self._client.get(_part_path(upload, part.number)).data
        except NotFoundError:
            return None
        if not is_made_of(data, [part]):
            raise changed_part_error(self._client.name(upload.path), part)
        return data

    def _check_open(self, upload: UploadId) -> None:
        _check_upload_id(upload, self._client.name(upload.path))
        dangling = self._find_upload(upload.token)
        if dangling is None or dangling.upload != upload:
            raise missing_upload_error(self._client.name(upload.path))

    def _find_upload(self, token: str) -> DanglingUpload | None:
        path = _record_path(token)
        try:
            record = self._client.get(path).data
        except NotFoundError:
            return None
        return decode_upload_record(record, token, self._client.name(path))

    def _find(self, path: str) -> ObjectInfo | None:
        try:
            return self._client.head(path)
        except NotFoundError:
            return None


def _check_upload_id(upload: UploadId, object_name: str) -> None:
    require_path(upload.path)
    if not is_token(upload.token):
        raise InvalidInputError("not an upload of this store", object_name=object_name)


def _folder(upload: UploadId) -> str:
    return f"{_UPLOADS}{upload.token}/"


def _part_path(upload: UploadId, number: int) -> str:
    return f"{_folder(upload)}{part_stem(upload.token)}{number:05d}"


def _record_path(token: str) -> str:
    return f"{_UPLOADS}{token}/{record_name(token)}"
