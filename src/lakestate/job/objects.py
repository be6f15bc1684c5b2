"""Typed, verified access to the objects of one job: what is read is checked before it is used.

It makes no decisions and deletes nothing: that belongs to `protocol` and `coordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import xxhash

from lakestate.codec import decode_manifest, decode_subtask
from lakestate.errors import (
    RESTORE_OR_GO_BACK,
    CorruptionError,
    MisplacedObjectError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakestate.job.known_objects import KnownObjects
from lakestate.observability.time_parts import UPLOAD, timed
from lakestate.protocol.metadata import Manifest, SubtaskEntry, SubtaskMetadata
from lakestate.protocol.names import require_name
from lakestate.protocol.paths import (
    BOUNDARY,
    EPOCH_RECORDS,
    FENCE,
    TAGS,
    ObjectKind,
    Paths,
    parse_object_name,
)
from lakestate.protocol.records import (
    BoundaryRecord,
    CommittedRecord,
    EpochRecord,
    GenerationRecord,
    Record,
    TagRecord,
)
from lakestate.protocol.relative_path import split_origin, with_origin
from lakestate.protocol.values import Epoch, FileRef, ObjectRef
from lakestate.storage.spans import BeyondEndError
from lakestate.storage.store import ByteRange, Created, Data, ObjectStore, Swapped, Version

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Versioned(Generic[R]):
    """A record with the version it was read at, for compare-and-swap."""

    record: R
    version: Version


@dataclass(frozen=True, slots=True)
class JobObjects:
    """The objects of one job below a store's root. Picklable, so that subtasks can hold one."""

    store: ObjectStore
    job_id: str
    known: KnownObjects | None = field(default=None, compare=False, repr=False)
    """What need not be fetched again. It stays in this process."""

    def __reduce__(self) -> tuple[object, ...]:
        return JobObjects, (self.store, self.job_id)

    def __post_init__(self) -> None:
        require_name("job", self.job_id)

    @property
    def paths(self) -> Paths:
        """The names of this job's objects."""
        return Paths(self.job_id)

    def store_path(self, path: str) -> str:
        """A path below the job's root, or to an object of another job, as a path below the store's root."""
        origin, below = split_origin(path)
        return f"{origin or self.job_id}/{below}"

    def url_of(self, path: str) -> str:
        """The full URL of an object, as error messages name it."""
        return f"{self.store.url}/{self.store_path(path)}"

    @timed(UPLOAD)
    def create_new(self, name: Callable[[str | None], str], data: Data, attempt: str) -> ObjectRef:
        """Write an object under its plain name, or with the attempt's suffix if that is taken.

        An earlier attempt's object may still be referred to, so nothing is ever overwritten. A
        lost answer counts as taken: the orphan that it may leave is collected with its epoch.
        """
        path = name(None)
        if not self._try_create(path, data):
            path = name(attempt)
            self.store.put(self.store_path(path), data)
        return ObjectRef(path, len(data), xxhash.xxh3_64_intdigest(data))

    def swap(self, path: str, record: Record, seen: Versioned[R] | None) -> bool:
        """Replace the record that was read, or create the first. False if another process was faster.

        Raises OutcomeUnknownError if the answer was lost: read the record again to know.
        """
        data = record.encode()
        if seen is None:
            return isinstance(self.store.create(self.store_path(path), data), Created)
        return isinstance(self.store.compare_and_swap(self.store_path(path), data, seen.version), Swapped)

    def read_verified(self, ref: ObjectRef) -> bytes:
        """The bytes of a referenced object, or CorruptionError naming it."""
        try:
            data = self.store.get(self.store_path(ref.path)).data
        except NotFoundError as cause:
            raise self._missing_error(ref) from cause
        return self.verify(ref, data)

    def check_size(self, ref: ObjectRef) -> None:
        """Raise CorruptionError if a referenced object is missing, or has another size. It is not read."""
        try:
            found = self.store.head(self.store_path(ref.path))
        except NotFoundError as cause:
            raise self._missing_error(ref) from cause
        if found.size_bytes != ref.size_bytes:
            raise self._size_error(ref, f"{found.size_bytes} bytes")

    def read_ranges(self, ref: ObjectRef, spans: Sequence[ByteRange]) -> list[bytes]:
        """Parts of a referenced object. The caller verifies them."""
        try:
            return self.store.get_ranges(self.store_path(ref.path), spans)
        except NotFoundError as cause:
            raise self._missing_error(ref) from cause
        except BeyondEndError as cause:
            raise self._size_error(ref, cause.found or "fewer bytes") from cause

    @timed(UPLOAD)
    def put_verified(self, ref: ObjectRef, data: Data) -> None:
        """Write an object under a name that nothing else uses, and check the stored size."""
        written = self.store.put(self.store_path(ref.path), data)
        if written.size_bytes != ref.size_bytes:
            raise CorruptionError(
                "the store reports a different size than was written",
                object_name=self.url_of(ref.path),
                found=f"{written.size_bytes} bytes",
                expected=f"{ref.size_bytes} bytes",
            )

    def read_many_verified(self, refs: Sequence[ObjectRef]) -> list[bytes]:
        """The bytes of several referenced objects, fetched in parallel."""
        try:
            found = self.store.get_many([self.store_path(ref.path) for ref in refs])
        except NotFoundError as cause:
            named = cause.object_name or ""
            gone = (ref for ref in refs if named.endswith(f"/{self.store_path(ref.path)}"))
            raise self._missing_error(next(gone, refs[0])) from cause
        return [self.verify(ref, item.data) for ref, item in zip(refs, found, strict=True)]

    def verify(self, ref: ObjectRef, data: Data) -> bytes:
        """The same bytes, if they match the reference; otherwise CorruptionError."""
        if len(data) != ref.size_bytes:
            raise self._size_error(ref, f"{len(data)} bytes")
        checksum = xxhash.xxh3_64_intdigest(data)
        if checksum != ref.checksum:
            raise CorruptionError(
                "object does not match its checksum",
                object_name=self.url_of(ref.path),
                found=f"xxh3 {checksum:016x}",
                expected=f"xxh3 {ref.checksum:016x}",
                action=RESTORE_OR_GO_BACK,
            )
        return bytes(data)

    def read_fence(self) -> Versioned[GenerationRecord] | None:
        """The fence, or None for a job that was never started."""
        return self._read_record(FENCE, GenerationRecord)

    def read_boundary(self) -> Versioned[BoundaryRecord] | None:
        """The retention boundary, or None if nothing was ever collected."""
        return self._read_record(BOUNDARY, BoundaryRecord)

    def read_epoch(self, epoch: Epoch) -> EpochRecord | None:
        """The record of a published epoch, or None."""
        try:
            found = self.store.get(self.store_path(self.paths.epoch_record(epoch)))
        except NotFoundError:
            return None
        return self.decode_epoch_record(epoch, found.data)

    def decode_epoch_record(self, epoch: Epoch, data: bytes) -> EpochRecord:
        """Decode the bytes that were read as an epoch's record."""
        where = self.url_of(self.paths.epoch_record(epoch))
        record = EpochRecord.decode(data, where, self.job_id)
        if record.epoch != epoch:
            raise MisplacedObjectError(
                "epoch record is in another's place",
                object_name=where,
                found=f"epoch {record.epoch}",
                expected=f"epoch {epoch}",
            )
        return record

    def read_committed(self, epoch: Epoch) -> CommittedRecord | None:
        """The marker that an epoch's sinks are committed, or None."""
        found = self._read_record(self.paths.commit_marker(epoch), CommittedRecord)
        return None if found is None else found.record

    def is_marked_committed(self, epoch: Epoch) -> bool:
        """Whether an epoch has a commit marker, without reading it."""
        try:
            self.store.head(self.store_path(self.paths.commit_marker(epoch)))
        except NotFoundError:
            return False
        return True

    def read_tags(self) -> tuple[TagRecord, ...]:
        """All tags of the job, as they were at one moment.

        If one is deleted before it is read, they are listed again: another tag may have been made for its
        epoch meanwhile, and retention must see one of the two.
        """
        while True:
            listed = self.store.list(self.store_path(TAGS))
            names = [info.path.removeprefix(f"{self.job_id}/") for info in listed]
            found = [self.read_tag(name) for name in names if parse_object_name(name).kind is ObjectKind.TAG]
            tags = tuple(tag for tag in found if tag is not None)
            if len(tags) == len(found):
                return tags

    def read_tag(self, path: str) -> TagRecord | None:
        """The tag at a path, or None.

        Retention relies on tags: one under another's name would let the other's epoch be deleted.
        """
        found = self._read_record(path, TagRecord)
        if found is None:
            return None
        tag = found.record
        if self.paths.tag(tag.name) != path:
            raise MisplacedObjectError(
                "tag is in another's place",
                object_name=self.url_of(path),
                found=f"tag {tag.name}",
                expected=f"the tag of {path}",
                action="restore the object, or delete it if the tag is not needed",
            )
        return tag

    def list_epochs(self) -> list[Epoch]:
        """The epochs that have a record, oldest first."""
        prefix = f"{self.job_id}/"
        names = (
            parse_object_name(info.path.removeprefix(prefix))
            for info in self.store.list(self.store_path(EPOCH_RECORDS))
        )
        return [name.epoch for name in names if name.kind is ObjectKind.EPOCH_RECORD and name.epoch]

    def read_manifest(self, record: EpochRecord) -> Manifest:
        """The manifest that an epoch record names."""
        where = self.url_of(record.manifest.path)
        manifest = decode_manifest(self.read_verified(record.manifest), where, self.job_id)
        if (manifest.epoch, manifest.generation) != (record.epoch, record.generation):
            raise CorruptionError(
                "manifest does not belong to its epoch record",
                object_name=where,
                found=f"epoch {manifest.epoch} of generation {manifest.generation}",
                expected=f"epoch {record.epoch} of generation {record.generation}",
            )
        return manifest

    def read_manifests(self, epoch: Epoch) -> list[Manifest]:
        """Every manifest that was written for an epoch, published or not.

        A driver reads the fence between its manifest and its record. So after a claim, these are all the
        manifests that drivers before the claim can still publish.
        """
        prefix = self.paths.manifest(epoch).removesuffix(".pb")
        paths = [
            info.path.removeprefix(f"{self.job_id}/") for info in self.store.list(self.store_path(prefix))
        ]
        return [
            decode_manifest(self.store.get(self.store_path(path)).data, self.url_of(path), self.job_id)
            for path in paths
            if parse_object_name(path).kind is ObjectKind.MANIFEST
        ]

    def read_subtasks(self, entries: Sequence[SubtaskEntry]) -> list[SubtaskMetadata]:
        """The metadata of several subtasks."""
        data = self.read_encoded_subtasks(entries)
        return [self.decode_subtask(entry, item) for entry, item in zip(entries, data, strict=True)]

    def read_encoded_subtasks(self, entries: Sequence[SubtaskEntry]) -> list[bytes]:
        """The bytes of the metadata of several subtasks. What is not known is fetched in parallel."""
        known = KnownObjects() if self.known is None else self.known
        missing = [entry.metadata for entry in entries if known.get(entry.metadata.path) is None]
        fetched = self.read_many_verified(missing) if missing else []
        found = {ref.path: data for ref, data in zip(missing, fetched, strict=True)}
        for path, data in found.items():
            known.add(path, data)
        refs = [entry.metadata for entry in entries]
        return [found.get(ref.path) or self._verify_known(ref, known) for ref in refs]

    def decode_subtask(self, entry: SubtaskEntry, data: bytes) -> SubtaskMetadata:
        """The metadata in the bytes of an entry's object, as that of this job.

        An object of another job names its files below that job's root: here they get their origin.
        """
        path = entry.metadata.path
        origin, _ = split_origin(path)
        if origin is None:
            return self.decode_shipped_subtask(entry, data)
        known = KnownObjects() if self.known is None else self.known
        return known.decode(path, data, lambda item: self._adopt(item, path, origin))

    def decode_shipped_subtask(self, entry: SubtaskEntry, data: bytes) -> SubtaskMetadata:
        """The metadata of a subtask that was encoded as that of this job."""
        path = entry.metadata.path
        known = KnownObjects() if self.known is None else self.known
        return known.decode(path, data, lambda item: decode_subtask(item, self.url_of(path), self.job_id))

    def _adopt(self, data: bytes, path: str, origin: str) -> SubtaskMetadata:
        stored = decode_subtask(data, self.url_of(path), origin)
        tables = (replace(table, files=_with_origins(table.files, origin)) for table in stored.tables)
        return replace(stored, job_id=self.job_id, tables=tuple(tables))

    def _verify_known(self, ref: ObjectRef, known: KnownObjects) -> bytes:
        data = known.get(ref.path)
        # Another thread may have forgotten it a moment ago.
        if data is None:
            return self.read_verified(ref)
        self.verify(ref, data)
        return data

    def _try_create(self, path: str, data: Data) -> bool:
        try:
            return isinstance(self.store.create(self.store_path(path), data), Created)
        except OutcomeUnknownError:
            return False

    def _read_record(self, path: str, kind: type[R]) -> Versioned[R] | None:
        try:
            found = self.store.get(self.store_path(path))
        except NotFoundError:
            return None
        return Versioned(kind.decode(found.data, self.url_of(path), self.job_id), found.version)

    def _size_error(self, ref: ObjectRef, found: object) -> CorruptionError:
        return CorruptionError(
            "object does not have the size that its reference says",
            object_name=self.url_of(ref.path),
            found=found,
            expected=f"{ref.size_bytes} bytes",
            action=RESTORE_OR_GO_BACK,
        )

    def _missing_error(self, ref: ObjectRef) -> CorruptionError:
        origin, _ = split_origin(ref.path)
        if origin is not None:
            return CorruptionError(
                f"an object of job {origin} is missing, from which job {self.job_id} was forked",
                object_name=self.url_of(ref.path),
                expected=f"{ref.size_bytes} bytes, kept as long as the fork needs them",
                action=f"restore what was deleted of job {origin} from a copy",
            )
        return CorruptionError(
            "a referenced object is missing",
            object_name=self.url_of(ref.path),
            expected=f"{ref.size_bytes} bytes",
            action=RESTORE_OR_GO_BACK,
        )


def _with_origins(files: Sequence[FileRef], origin: str) -> tuple[FileRef, ...]:
    return tuple(replace(file, path=with_origin(file.path, origin)) for file in files)
