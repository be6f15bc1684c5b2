"""Files on their way into an object store: equal parts, several at a time. Nothing here completes them.

Parts are put during the epoch; the committer completes an upload after the epoch is published.
Memory is bounded by the parts in flight. A file that never filled a part and is small travels in
the manifest instead and costs one put.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore

import pyarrow as pa

from lakestate.errors import LakestateError
from lakestate.sinks.files.destination import (
    CurrentFileRecovery,
    FileEncoding,
    FileWriter,
    LocalResumePoint,
    ResumePoint,
    UploadResumePoint,
    moved_output_error,
    require_all_taken,
    require_statistics,
)
from lakestate.sinks.files.lanes import LANES_FOR_ROWS, LaneNames, claim_lane, lane_numbers
from lakestate.sinks.files.pre_commit import CompletedUpload, Content, FilePreCommit, Part, SmallObject
from lakestate.sinks.files.snapshot_upload import SnapshotUpload, can_copy
from lakestate.sinks.files.snapshots import Snapshot, SnapshotNaming
from lakestate.sinks.formats.format import BatchBufferingWriter
from lakestate.sinks.formats.statistics import FileStatistics
from lakestate.storage.store import ObjectStore, UploadedPart, UploadId

INLINE_BYTES_MAX = 64 * 1024
"""A file up to this size goes into the manifest."""

INLINE_TOTAL_BYTES_MAX = 1024 * 1024
"""All such files of one subtask in one epoch; the manifest must stay small."""


class PartPool:
    """Threads that put parts. `submit` waits while too many are in flight.

    Without threads each part is put at once and in order, as simulations need it.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._free = BoundedSemaphore(max(1, 2 * threads))

    def submit(self, put: Callable[[], UploadedPart]) -> Future[UploadedPart]:
        """Put a part in the background."""
        if not self._threads:
            done: Future[UploadedPart] = Future()
            done.set_result(put())
            return done
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="lakestate-part")
        self._free.acquire()
        future = self._executor.submit(put)
        future.add_done_callback(lambda _: self._free.release())
        return future

    def close(self) -> None:
        """Cancel what has not begun, and wait for the rest."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None


class UploadDestinations:
    """The uploads of one subtask in one epoch."""

    def __init__(
        self, store: ObjectStore, part_bytes: int, threads: int, snapshots: SnapshotNaming | None = None
    ) -> None:
        self.store = store
        self.part_bytes = max(part_bytes, store.uploads.part_bytes_min)
        self.pool = PartPool(threads)
        self._inline_bytes_left = INLINE_TOTAL_BYTES_MAX
        self._snapshots = snapshots

    def begin(self, path: str, encoding: FileEncoding) -> FileWriter:
        """A new file. Nothing is stored before its first part is full."""
        upload = FileUpload(self, path, UploadResumePoint(lane_names=LaneNames.NEUTRAL), begun_here=True)
        self._attach_copy(upload, None)
        return UploadWriter(upload, encoding.open_writer())

    def resume(self, path: str, recovery: CurrentFileRecovery, encoding: FileEncoding) -> FileWriter:
        """A file that continues."""
        resume_point = recovery.resume_point
        if isinstance(resume_point, LocalResumePoint):
            raise moved_output_error(path, resume_point, self.store.url)
        upload = FileUpload(self, path, resume_point, begun_here=resume_point.token is None)
        self._attach_copy(upload, recovery.snapshot)
        return UploadWriter(upload, encoding.open_writer(recovery.state))

    def _attach_copy(self, upload: FileUpload, previous: Snapshot | None) -> None:
        if self._snapshots is not None and can_copy(self.store, previous, upload.size_bytes):
            path = self._snapshots.path(upload.path)
            upload.copy = SnapshotUpload(self, path, previous, upload.size_bytes)

    def may_inline(self, size_bytes: int) -> bool:
        """Whether a file may travel in the manifest; if so its bytes are counted."""
        if size_bytes > min(INLINE_BYTES_MAX, self._inline_bytes_left):
            return False
        self._inline_bytes_left -= size_bytes
        return True

    def close(self) -> None:
        """End the threads."""
        self.pool.close()


class FileUpload:
    """The upload of one file in one epoch."""

    def __init__(
        self, uploads: UploadDestinations, path: str, resume_point: UploadResumePoint, *, begun_here: bool
    ) -> None:
        self.path = path
        self._uploads = uploads
        self._upload = None if resume_point.token is None else UploadId(path, resume_point.token)
        self._parts = list(resume_point.parts)
        self._pending: list[Future[UploadedPart]] = []
        self._lane = resume_point.lane
        self._lane_names = resume_point.lane_names
        # No other attempt knows an upload that this attempt began: its first lane is ours.
        self._numbers = iter(lane_numbers(0) if begun_here else ())
        self._size = sum(part.size_bytes for part in resume_point.parts)
        self._inline: bytes | None = None
        self.copy: SnapshotUpload | None = None
        """Takes the same bytes, if a copy is wanted and can be made."""

    @property
    def size_bytes(self) -> int:
        """The bytes accepted so far, in all epochs."""
        return self._size

    def accept(self, writer: BatchBufferingWriter) -> None:
        """Put every part that is full."""
        while writer.buffered_bytes >= self._uploads.part_bytes:
            self._put(writer.split_to(self._uploads.part_bytes))

    def accept_all(self, writer: BatchBufferingWriter) -> None:
        """Put the rest: full parts and a last one, or nothing if the file can travel in the manifest."""
        self._discard_copy()
        if self._upload is None and self._uploads.may_inline(writer.buffered_bytes):
            self._inline = writer.split_to(writer.buffered_bytes)
            self._size += len(self._inline)
            return
        self.accept(writer)
        if writer.buffered_bytes:
            self._put(writer.split_to(writer.buffered_bytes))

    def checkpoint(self) -> ResumePoint:
        """Wait for the parts."""
        self._settle()
        token = None if self._upload is None else self._upload.token
        return UploadResumePoint(token, self._lane, tuple(self._parts), self._lane_names)

    def complete(self) -> Content:
        """Wait for the parts of a file that is finished."""
        if self._inline is not None:
            return SmallObject(self._inline)
        self._settle()
        assert self._upload is not None, "a finished file has at least its footer"
        return CompletedUpload(self._upload.token, tuple(self._parts), self._lane_names)

    def must_roll(self) -> bool:
        """True if few lanes are left."""
        return self._lane >= LANES_FOR_ROWS

    def abandon(self) -> None:
        """Parts in flight finish on their own; nothing refers to them."""
        for future in self._pending:
            future.cancel()
        if self.copy is not None:
            self.copy.cancel()

    def _discard_copy(self) -> None:
        copy, self.copy = self.copy, None
        if copy is not None:
            copy.discard()

    def _put(self, data: bytes) -> None:
        self._raise_failed()
        number = self._next_number()
        upload = self._upload
        if upload is None:
            upload = self._upload = self._uploads.store.uploads.start(self.path)
        put_part = self._uploads.store.uploads.put_part
        self._size += len(data)
        if self.copy is not None:
            self.copy.add(data)
        self._pending.append(self._uploads.pool.submit(lambda: put_part(upload, number, data)))

    def _next_number(self) -> int:
        number = next(self._numbers, None)
        if number is None:
            self._lane = claim_lane(self._uploads.store, self.path, self._lane, self._lane_names)
            self._numbers = iter(lane_numbers(self._lane))
            number = next(self._numbers)
        return number

    def _settle(self) -> None:
        self._parts += [Part.of(future.result()) for future in self._pending]
        self._pending = []

    def _raise_failed(self) -> None:
        """Raise the error of a part that failed in the background, without waiting for the checkpoint."""
        for future in self._pending:
            if future.done() and isinstance(error := future.exception(), LakestateError):
                raise error


class UploadWriter:
    """One file of any format in one epoch. See `FileWriter` for what each method promises."""

    def __init__(self, upload: FileUpload, writer: BatchBufferingWriter) -> None:
        self._upload = upload
        self._writer = writer
        self._statistics: FileStatistics | None = None
        self._is_finished = False

    @property
    def file_bytes(self) -> int:
        """The approximate size of the file if it ended now."""
        return self._writer.file_bytes

    def must_roll(self) -> bool:
        """True if the upload cannot take many more parts."""
        return self._upload.must_roll()

    def write_batch(self, batch: pa.RecordBatch) -> int:
        """Take rows, and put parts that are full; the bytes put so far."""
        self._writer.add_batch_data(batch)
        self._upload.accept(self._writer)
        return self._upload.size_bytes

    def begin_checkpoint(self) -> None:
        """Put what fills a part."""
        self._writer.settle()
        self._upload.accept(self._writer)

    def checkpoint(self) -> CurrentFileRecovery:
        """Wait for the parts. What fills none is in the state of the writer."""
        resume_point = self._upload.checkpoint()
        state = self._writer.checkpoint()
        require_all_taken(self._upload.path, state, self._upload.size_bytes)
        return CurrentFileRecovery(resume_point, state)

    def can_snapshot(self) -> bool:
        """Whether what is put already can be read."""
        return self._upload.copy is not None

    def snapshot(self) -> FilePreCommit:
        """A complete copy: what is put, and the bytes that would end the file now."""
        assert self._upload.copy is not None, "a file of which no copy can be made is finished"
        return self._upload.copy.finish(*self._writer.trailing_bytes_for_checkpoint())

    def finish(self) -> None:
        """End the file and put the rest of it."""
        self._is_finished = True
        self._statistics = self._writer.finish()
        self._upload.accept_all(self._writer)

    def close(self) -> FilePreCommit:
        """End the file, unless that is done, and wait; only completing the upload is left to do."""
        if not self._is_finished:
            self.finish()
        content = self._upload.complete()
        statistics = require_statistics(self._upload.path, self._statistics)
        return FilePreCommit(self._upload.path, self._upload.size_bytes, content, statistics)

    def release(self) -> None:
        """Do nothing: the threads belong to all files of the subtask."""

    def abandon(self) -> None:
        """Parts in flight finish on their own; nothing refers to them."""
        self._upload.abandon()
