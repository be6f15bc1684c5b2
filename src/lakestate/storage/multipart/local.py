"""Multipart uploads on local files: a folder of part files, and one atomic rename at completion.

An upload is the folder `.lakestate/uploads/{token}/` with a record, which names the object, and one
file per part. The folder appears and disappears in one step.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.storage.local.errors import translate_read_errors, translate_write_errors
from lakestate.storage.local.object_files import file_info, object_file, open_file
from lakestate.storage.multipart.parts import (
    changed_part_error,
    check_parts,
    content_receipt,
    decode_upload_record,
    encode_upload_record,
    is_token,
    missing_upload_error,
    new_token,
    part_stem,
    record_name,
    require_completed_object,
    require_part_number,
)
from lakestate.storage.object_path import require_path, require_prefix
from lakestate.storage.store import DanglingUpload, Data, ObjectInfo, UploadedPart, UploadId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakestate.storage.local.file_tree import FileTree, TemporaryFile

_CHUNK_BYTES = 1 << 20


class LocalUploads:
    """See `MultipartUploads` for what each method promises."""

    part_bytes_min = 1

    def __init__(self, files: FileTree, url: str) -> None:
        self._files = files
        self._url = url

    def start(self, path: str) -> UploadId:
        """Start an upload. It is durable when this returns."""
        require_path(path)
        upload = UploadId(path, new_token(uuid.uuid4().hex))
        record = encode_upload_record(path, time.time_ns() // 1_000_000)
        folder = self._files.uploads / upload.token
        with translate_write_errors(self._name(upload)):
            self._files.publish_folder(folder, {record_name(upload.token): record})
        return upload

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        """Store one part. It is durable when this returns."""
        folder = self._folder(upload)
        target = _part_file(folder, upload, require_part_number(number))
        with translate_write_errors(self._name(upload)), self._files.temporary() as file:
            file.append(data)
            file.sync()
            try:
                with self._files.lock(upload.token):
                    self._files.publish_in_existing(file, target)
            except FileNotFoundError:
                raise missing_upload_error(self._name(upload)) from None
            size = os.fstat(file.descriptor).st_size
        return UploadedPart(number, size, content_receipt([data]))

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        """The finished parts, by number."""
        folder = self._folder(upload)
        with translate_read_errors(self._name(upload)):
            files = sorted(folder.glob(f"{part_stem(upload.token)}[0-9][0-9][0-9][0-9][0-9]"))
            return tuple(map(_part, files))

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """Join the parts into the object."""
        check_parts(self._name(upload), parts)
        try:
            folder = self._folder(upload)
            info = self._join(folder, upload, parts)
        except NotFoundError:
            return require_completed_object(self._name(upload), self._find(upload.path), parts)
        with translate_write_errors(self._name(upload)):
            self._files.discard_folder(folder)
        return info

    def abort(self, upload: UploadId) -> None:
        """Remove the parts."""
        with suppress(NotFoundError), translate_write_errors(self._name(upload)):
            self._files.discard_folder(self._folder(upload))

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        """The uploads that were neither completed nor aborted, in order of path."""
        require_prefix(prefix)
        try:
            tokens = [folder.name for folder in self._files.uploads.iterdir()]
        except FileNotFoundError:
            return iter(())
        found = filter(None, map(self._find_upload, tokens))
        return iter(sorted((each for each in found if each.upload.path.startswith(prefix)), key=_order))

    def _join(self, folder: Path, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        name = self._name(upload)
        target = object_file(self._files.root, upload.path)
        with translate_write_errors(name), self._files.temporary() as file:
            for part in parts:
                self._append_part(file, folder, upload, part)
            file.sync()
            with self._files.lock(upload.path):
                self._files.publish_replacing(file, target)
            return file_info(upload.path, os.fstat(file.descriptor))

    def _append_part(self, file: TemporaryFile, folder: Path, upload: UploadId, part: UploadedPart) -> None:
        try:
            with open_file(_part_file(folder, upload, part.number)) as reader:
                if os.fstat(reader.fileno()).st_size != part.size_bytes:
                    raise changed_part_error(self._name(upload), part)
                if content_receipt(_copy_chunks(file, reader)) != part.token:
                    raise changed_part_error(self._name(upload), part)
        except FileNotFoundError:
            # Another process may have completed or aborted the upload in the meantime.
            self._folder(upload)
            raise changed_part_error(self._name(upload), part) from None

    def _find(self, path: str) -> ObjectInfo | None:
        target = object_file(self._files.root, path)
        try:
            return file_info(path, target.stat(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _folder(self, upload: UploadId) -> Path:
        require_path(upload.path)
        if not is_token(upload.token):
            raise InvalidInputError("not an upload of local files", object_name=self._name(upload))
        dangling = self._find_upload(upload.token)
        if dangling is None or dangling.upload != upload:
            raise missing_upload_error(self._name(upload))
        return self._files.uploads / upload.token

    def _find_upload(self, token: str) -> DanglingUpload | None:
        record = self._files.uploads / token / record_name(token)
        try:
            data = record.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return decode_upload_record(data, token, str(record))

    def _name(self, upload: UploadId) -> str:
        return f"{self._url}/{upload.path}"


def _part(file: Path) -> UploadedPart:
    with open_file(file) as reader:
        size = os.fstat(reader.fileno()).st_size
        return UploadedPart(int(file.name[-5:]), size, content_receipt(_chunks(reader)))


def _chunks(reader: IO[bytes]) -> Iterator[bytes]:
    while chunk := reader.read(_CHUNK_BYTES):
        yield chunk


def _copy_chunks(file: TemporaryFile, reader: IO[bytes]) -> Iterator[bytes]:
    """The chunks of a file, each appended to the other file as it is read."""
    for chunk in _chunks(reader):
        file.append(chunk)
        yield chunk


def _part_file(folder: Path, upload: UploadId, number: int) -> Path:
    return folder / f"{part_stem(upload.token)}{number:05d}"


def _order(dangling: DanglingUpload) -> tuple[str, int, str]:
    return (dangling.upload.path, dangling.started_ms, dangling.upload.token)
