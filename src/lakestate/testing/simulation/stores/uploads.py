"""Multipart uploads of a simulated store: parts in a dict until they are completed or aborted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.storage.multipart.parts import (
    changed_part_error,
    check_parts,
    missing_upload_error,
    require_completed_object,
    require_part_number,
)
from lakestate.storage.object_path import require_path, require_prefix
from lakestate.storage.store import DanglingUpload, Data, ObjectInfo, UploadedPart, UploadId

if TYPE_CHECKING:
    from lakestate.testing.simulation.stores.store import SimulatedStore


@dataclass
class _Upload:
    path: str
    started_ms: int
    parts: dict[int, tuple[str, bytes]] = field(default_factory=dict)


class SimulatedUploads:
    """See `MultipartUploads` for what each method promises."""

    part_bytes_min = 1

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._uploads: dict[str, _Upload] = {}
        self._tokens = count(1)
        self.vanishes: Callable[[], bool] = lambda: False
        """Called for every part: True if it is acknowledged and then lost, as no store should do."""

    def start(self, path: str) -> UploadId:
        """Start an upload."""
        token = f"upload-{next(self._tokens)}"
        self._uploads[token] = _Upload(require_path(path), self._store.now_ms())
        return UploadId(path, token)

    def put_part(self, upload: UploadId, number: int, data: Data) -> UploadedPart:
        """Keep one part."""
        # As in S3, the receipt depends on the content: repeating the same bytes changes nothing.
        token = hashlib.blake2b(data, digest_size=8).hexdigest()
        parts = self._open(upload).parts
        parts[require_part_number(number)] = (token, bytes(data))
        if self.vanishes():
            del parts[number]
        return UploadedPart(number, len(data), token)

    def list_parts(self, upload: UploadId) -> tuple[UploadedPart, ...]:
        """The parts, by number."""
        parts = sorted(self._open(upload).parts.items())
        return tuple(UploadedPart(number, len(data), token) for number, (token, data) in parts)

    def complete(self, upload: UploadId, parts: Sequence[UploadedPart]) -> ObjectInfo:
        """Join the parts into the object."""
        shown = f"{self._store.url}/{upload.path}"
        check_parts(shown, parts)
        try:
            kept = self._open(upload).parts
        except NotFoundError:
            return require_completed_object(shown, self._there(upload.path), parts)
        for part in parts:
            if part.number not in kept or kept[part.number][0] != part.token:
                raise changed_part_error(shown, part)
        data = b"".join(kept[part.number][1] for part in parts)
        del self._uploads[upload.token]
        return self._store.put(upload.path, data)

    def abort(self, upload: UploadId) -> None:
        """Discard the upload."""
        found = self._uploads.get(upload.token)
        if found is not None:
            self._open(upload)
            del self._uploads[upload.token]

    def list_dangling(self, prefix: str = "") -> Iterator[DanglingUpload]:
        """Every upload that is still open."""
        require_prefix(prefix)
        found = sorted(
            (upload.path, token) for token, upload in self._uploads.items() if upload.path.startswith(prefix)
        )
        return iter(
            [DanglingUpload(UploadId(path, token), self._uploads[token].started_ms) for path, token in found]
        )

    def _open(self, upload: UploadId) -> _Upload:
        found = self._uploads.get(upload.token)
        if found is None:
            raise missing_upload_error(f"{self._store.url}/{upload.path}")
        if found.path != upload.path:
            raise InvalidInputError(
                "the upload is of another object", object_name=upload.path, found=found.path
            )
        return found

    def _there(self, path: str) -> ObjectInfo | None:
        try:
            return self._store.head(path)
        except NotFoundError:
            return None
