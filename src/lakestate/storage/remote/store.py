"""The object store over obstore: S3, Google, Azure, and memory for tests.

A version on S3 is the e-tag, which S3 computes from the content, so compare-and-swap there compares
contents. Records that are swapped must therefore contain something unique, as ours do. Otherwise a
value that changed from A to B and back to A would count as unchanged.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakestate.storage.object_path import is_reserved, require_folder, require_path, require_prefix
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.remote.client import RemoteClient
from lakestate.storage.remote.conditional import ConditionalWrite, ObservedObject
from lakestate.storage.spans import check_spans
from lakestate.storage.store import (
    ByteRange,
    CreateOutcome,
    Data,
    MultipartUploads,
    ObjectInfo,
    StoredObject,
    SwapOutcome,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakestate.config import StoreConfig


class ObstoreStore:
    """Objects in a bucket. See `ObjectStore` for what each method promises."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._client = RemoteClient(config)
        self._uploads: MultipartUploads | None = None

    def __repr__(self) -> str:
        return f"ObstoreStore({self.url!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[StoreConfig]]:
        from lakestate.storage.opening import open_store

        return (open_store, (self._config,))

    @property
    def url(self) -> str:
        """The root, as it was given."""
        return self._client.url

    @property
    def uploads(self) -> MultipartUploads:
        """Multipart uploads: the store's own on S3, part objects elsewhere."""
        if self._uploads is None:
            self._uploads = _uploads_of(self._config, self._client)
        return self._uploads

    def put(self, path: str, data: Data) -> ObjectInfo:
        """Write the object, replacing any previous content."""
        return self._client.put(require_path(path), data)

    def get(self, path: str) -> StoredObject:
        """The whole object."""
        return self._client.get(require_path(path))

    def get_range(self, path: str, span: ByteRange) -> bytes:
        """One range of the object."""
        return self.get_ranges(path, [span])[0]

    def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> list[bytes]:
        """Several ranges of the object, in the order requested."""
        check_spans(self._client.name(path), spans)
        return self._client.get_ranges(require_path(path), spans)

    def get_many(self, paths: Sequence[str]) -> list[StoredObject]:
        """Several objects, in the order requested."""
        return map_in_parallel(self.get, paths)

    def head(self, path: str) -> ObjectInfo:
        """Size, time and version of the object."""
        return self._client.head(require_path(path))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose path begins with the prefix, in order of path."""
        found = self._client.list(require_prefix(prefix))
        return (info for info in found if not is_reserved(info.path))

    def list_folders(self, folder: str = "") -> Sequence[str]:
        """The folders directly below a folder, with one request for each thousand entries."""
        return [name for name in self._client.list_folders(require_folder(folder)) if not is_reserved(name)]

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete the objects, up to a thousand per request where the store supports it."""
        self._client.delete([require_path(path) for path in paths])

    def create(self, path: str, data: Data) -> CreateOutcome:
        """Write the object only if it does not exist."""
        return self._conditional(path, data).create(self._client.retrier)

    def compare_and_swap(self, path: str, data: Data, expected: Version) -> SwapOutcome:
        """Replace the object only if it has the expected version."""
        return self._conditional(path, data).swap(self._client.retrier, expected)

    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy on the server."""
        self._client.copy(require_path(source), require_path(target))
        return self._client.head(target)

    def _conditional(self, path: str, data: Data) -> ConditionalWrite:
        target = _Target(self._client, require_path(path))
        return ConditionalWrite(target, self._client.name(path), data, uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class _Target:
    client: RemoteClient
    path: str

    def write(self, data: Data, write_id: str, expected: Version | None) -> Version:
        return self.client.write_once(self.path, data, write_id, expected)

    def look(self) -> ObservedObject | None:
        return self.client.look_once(self.path)


def _uploads_of(config: StoreConfig, client: RemoteClient) -> MultipartUploads:
    if config.url.startswith("s3://"):
        from lakestate.storage.multipart.s3 import S3Uploads

        return S3Uploads(config)
    from lakestate.storage.multipart.part_objects import PartObjectUploads

    return PartObjectUploads(client)
