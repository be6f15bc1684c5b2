"""Files of the engine that grow, such as the log of a file source: stored in pieces that never change.

An epoch stores what is new. The manifest refers to all pieces, so that neither its size nor the bytes of
an epoch depend on how much the engine has read.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from lakestate.ambient import Ambient
from lakestate.coordinator.epoch_plan import LogUpdate
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import EngineLog, Manifest, NamedBytes
from lakestate.protocol.values import Epoch, ObjectRef

VERSION = b"v1"
"""The first line of every such file. It is not part of the pieces, so that files can be joined."""


def store_logs(
    job: JobObjects, epoch: Epoch, updates: Sequence[LogUpdate], ambient: Ambient
) -> tuple[EngineLog, ...]:
    """Store what is new. Until the epoch is published, nothing refers to it."""
    return tuple(
        EngineLog(
            update.name,
            tuple(
                part if isinstance(part, ObjectRef) else _store_piece(job, epoch, part, ambient)
                for part in update.parts
            ),
        )
        for update in updates
    )


def read_logs(job: JobObjects, manifest: Manifest) -> tuple[NamedBytes, ...]:
    """The whole content of the files that an epoch keeps in pieces. Each piece is verified."""
    refs = list(dict.fromkeys(piece for log in manifest.engine_logs for piece in log.pieces))
    data = dict(zip(refs, job.read_many_verified(refs), strict=True)) if refs else {}
    return tuple(
        NamedBytes(log.name, join_pieces([data[piece] for piece in log.pieces]))
        for log in manifest.engine_logs
    )


def join_pieces(pieces: Sequence[bytes]) -> bytes:
    """The file that consists of these pieces."""
    return b"".join([VERSION, *pieces])


def _store_piece(job: JobObjects, epoch: Epoch, data: bytes, ambient: Ambient) -> ObjectRef:
    ref = ObjectRef(job.paths.engine_log(epoch, ambient.new_id()), len(data), xxhash.xxh3_64_intdigest(data))
    job.put_verified(ref, data)
    return ref
