"""What a subtask of a staged sink hands to the manifest: the objects that hold its rows of the epoch."""

from __future__ import annotations

import msgspec

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.protocol.values import FileRef, ObjectRef


class StagedObject(msgspec.Struct, frozen=True, array_like=True):
    """Rows in one object of the job. The path is relative to the job's root."""

    path: str
    size_bytes: int
    checksum: int
    row_count: int

    @classmethod
    def of(cls, file: FileRef) -> StagedObject:
        """The object of a data file."""
        return cls(file.path, file.size_bytes, file.checksum, file.row_count)

    @property
    def ref(self) -> ObjectRef:
        """Path, size and checksum."""
        return ObjectRef(self.path, self.size_bytes, self.checksum)


class StagedRows(msgspec.Struct, frozen=True):
    """One subtask's rows of an epoch, in order.

    >>> rows = StagedRows("4f1c", "out", 2, (StagedObject("checkpoints/1/a.parquet", 9, 7, 3),))
    >>> StagedRows.decode(rows.encode()) == rows
    True
    """

    state_id: str
    sink_id: str
    subtask_index: int
    objects: tuple[StagedObject, ...]

    def encode(self) -> bytes:
        """The bytes for the manifest."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> StagedRows:
        """The value of the bytes."""
        try:
            found = msgspec.msgpack.decode(data, type=cls)
            for each in found.objects:
                _ = each.ref
            return found
        except (*UNDECODABLE, InvalidInputError) as cause:
            raise CorruptionError(
                "the pre-commit of a staged sink cannot be read", found=f"{len(data)} bytes: {cause}"
            ) from cause
