"""Writing rows into one plain Parquet file, on this machine or in a store, a batch at a time.

The file appears when it is complete, or not at all.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.config import StoreConfig, store_url
from lakestate.errors import ConflictError, InvalidInputError, NotFoundError
from lakestate.storage import open_store
from lakestate.storage.store import ObjectStore, UploadedPart, UploadId

ROWS_OF_A_GROUP = 1_000_000
PART_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is complete."""

    url: str
    rows: int
    size_bytes: int


def write_parquet(
    rows: pa.RecordBatchReader,
    target: str,
    options: dict[str, str],
    tell: Callable[[int], None],
    *,
    overwrite: bool,
) -> WrittenFile:
    """Write all rows. `tell` is called with the number of rows so far."""
    if not target.endswith(".parquet"):
        raise InvalidInputError(
            "not the name of a Parquet file", found=target, expected="a name with .parquet"
        )
    place, name = store_url(target).rsplit("/", 1)
    store = open_store(StoreConfig(place, options))
    path = unquote(name) if urlsplit(place).scheme == "file" else name
    if not overwrite:
        _refuse_existing(store, path, target)
    with _upload(store, path) as stream:
        count = _write_batches(rows, stream, tell)
    return WrittenFile(f"{place}/{name}", count, store.head(path).size_bytes)


def _refuse_existing(store: ObjectStore, path: str, target: str) -> None:
    try:
        found = store.head(path)
    except NotFoundError:
        return
    raise ConflictError(
        "the file exists already",
        object_name=target,
        found=f"{found.size_bytes:,} bytes",
        action="choose another name, or pass --overwrite",
    )


def _write_batches(rows: pa.RecordBatchReader, stream: _Parts, tell: Callable[[int], None]) -> int:
    count, pending, waiting_rows = 0, [], 0
    with pq.ParquetWriter(stream, rows.schema, compression="zstd") as writer:
        for batch in rows:
            pending.append(batch)
            waiting_rows += batch.num_rows
            count += batch.num_rows
            if waiting_rows >= ROWS_OF_A_GROUP:
                writer.write_table(pa.Table.from_batches(pending, rows.schema))
                pending, waiting_rows = [], 0
                tell(count)
        writer.write_table(pa.Table.from_batches(pending, rows.schema))
    return count


@contextmanager
def _upload(store: ObjectStore, path: str) -> Iterator[_Parts]:
    """A stream whose bytes become an object at the end. After a failure there is none."""
    parts = _Parts(store, path)
    try:
        yield parts
        parts.complete()
    except BaseException:
        parts.abort()
        raise


class _Parts(io.RawIOBase):
    """Bytes that are uploaded in parts as they come."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._buffer = bytearray()
        self._upload: UploadId | None = None
        self._done: list[UploadedPart] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer += data
        if len(self._buffer) >= max(PART_BYTES, self._store.uploads.part_bytes_min):
            self._send()
        return len(data)

    def complete(self) -> None:
        if self._upload is None:
            self._store.put(self._path, bytes(self._buffer))
            return
        self._send()
        self._store.uploads.complete(self._upload, self._done)

    def abort(self) -> None:
        if self._upload is not None:
            self._store.uploads.abort(self._upload)

    def _send(self) -> None:
        if self._upload is None:
            self._upload = self._store.uploads.start(self._path)
        number = len(self._done) + 1
        self._done.append(self._store.uploads.put_part(self._upload, number, bytes(self._buffer)))
        self._buffer.clear()
