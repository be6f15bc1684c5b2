"""Rebuilding the fence of a job from its epochs.

The fence says who may write, not what was written: all of it can be had again from the epochs. A driver that
still runs is fenced by the new claim id, whatever its generation was.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from lakestate.ambient import Ambient
from lakestate.coordinator.claim import identity_in
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import CorruptionError, InvalidInputError, NotFoundError, OutcomeUnknownError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.paths import FENCE
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import FIRST_GENERATION, GENERATION_MAX, Epoch, Generation
from lakestate.storage.store import Created, StoredObject, Swapped

SALVAGE_MAX = 1_000_000
"""A generation in damaged bytes counts if it is so close to the known ones: it may be damaged itself."""

_GENERATION = re.compile(rb'"generation":([1-9][0-9]{0,18})\b')
_log = logging.getLogger("lakestate.repair")


@dataclass(frozen=True, slots=True)
class RebuiltFence:
    """A fence that was rebuilt, and where the damaged one is now."""

    generation: Generation
    state_id: str
    epoch: Epoch | None
    """The newest epoch that could be read; the identity of the state is from it."""
    set_aside: str | None
    """The URL of a copy of the damaged fence; None if the fence was missing."""


def rebuild_fence(backend: ParquetBackend, job_id: str) -> RebuiltFence:
    """Replace a fence that is damaged, missing, or older than the epochs of its job.

    The new one has a higher generation than any that is known, and the identity of the newest epoch's state.
    A copy of the damaged one is kept below `set-aside/`. A driver that still runs the job ends with
    FencedError. Raises InvalidInputError if the fence is intact: then start a driver, which takes over.
    Calling it again after an error is fine.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-fence")
    >>> record = backend.claim("job")
    >>> backend.objects("job").store.put("job/generation.json", b"{}").size_bytes
    2
    >>> rebuilt = rebuild_fence(backend, "job")
    >>> rebuilt.generation, backend.claim("job").generation
    (Generation(1), Generation(2))
    """
    job, ambient = backend.objects(job_id), backend.ambient
    claim_id = ambient.new_id()
    set_aside: str | None = None
    while True:
        found = _read_object(job)
        current = _decode(job, found)
        if current is not None and current.claim_id == claim_id:
            # Our write had succeeded, and its answer was lost.
            return RebuiltFence(current.generation, current.state_id, _newest_epoch(job), set_aside)
        epoch, record = _plan(job, found, claim_id, ambient)
        if found is not None:
            set_aside = _set_aside(job, found.data, claim_id)
        with suppress(OutcomeUnknownError):
            if _replace(job, record, found):
                _log.warning("the fence of job %s was rebuilt as generation %s", job_id, record.generation)
                return RebuiltFence(record.generation, record.state_id, epoch, set_aside)


def _plan(
    job: JobObjects, found: StoredObject | None, claim_id: str, ambient: Ambient
) -> tuple[Epoch | None, GenerationRecord]:
    """The fence to write, and the epoch that it is taken from."""
    newest = _newest(job)
    epoch = None if newest is None else newest.epoch
    state_id, forked_from = (None, "") if newest is None else identity_in(newest)
    known = max(_known_generations(job), default=None)
    current = _decode(job, found)
    if current is not None:
        _refuse_intact(job, current, known, epoch, state_id)
    elif found is None and epoch is None:
        raise NotFoundError("no such job", object_name=job.url_of(""), action="start it: it begins anew")
    salvaged = 0 if found is None else _salvage(found.data, known)
    highest = max(known or 0, salvaged, 0 if current is None else current.generation)
    generation = Generation(highest + 1) if highest else FIRST_GENERATION
    identity = ambient.new_id() if state_id is None else state_id
    record = GenerationRecord(job.job_id, generation, claim_id, ambient.now_ms(), identity, forked_from)
    return epoch, record


def _refuse_intact(
    job: JobObjects, fence: GenerationRecord, known: Generation | None, epoch: Epoch | None, state: str | None
) -> None:
    is_outdated = known is not None and fence.generation < known
    is_foreign = state is not None and fence.state_id != state
    if not is_outdated and not is_foreign:
        raise InvalidInputError(
            "the fence is intact",
            object_name=job.url_of(FENCE),
            found=f"generation {fence.generation}" + (f", like epoch {epoch}" if epoch else ""),
            action="start a driver: it takes over the job; nothing was changed",
        )


def _newest_epoch(job: JobObjects) -> Epoch | None:
    newest = _newest(job)
    return None if newest is None else newest.epoch


def _newest(job: JobObjects) -> Manifest | None:
    """The newest epoch that can be read; None if there was none ever."""
    epochs = job.list_epochs()
    for epoch in reversed(epochs):
        with suppress(CorruptionError):
            record = job.read_epoch(epoch)
            if record is not None:
                return job.read_manifest(record)
    if epochs:
        raise CorruptionError(
            "no epoch can be read from which a fence could be rebuilt",
            object_name=job.url_of(job.paths.epoch_record(epochs[-1])),
            action="restore an epoch record and its manifest, or the fence; ls.verify names what is damaged",
        )
    return None


def _known_generations(job: JobObjects) -> Iterator[Generation]:
    with suppress(CorruptionError):
        boundary = job.read_boundary()
        if boundary is not None:
            yield boundary.record.generation
    for epoch in job.list_epochs():
        with suppress(CorruptionError):
            record = job.read_epoch(epoch)
            if record is not None:
                yield record.generation


def _salvage(data: bytes, known: Generation | None) -> int:
    """The generation in damaged bytes, if it can be right.

    Then a driver that had claimed the job and published nothing has a lower generation than the next one.
    """
    found = _GENERATION.search(data)
    number = 0 if found is None else int(found[1])
    return number if number <= min((known or 0) + SALVAGE_MAX, GENERATION_MAX - 2) else 0


def _decode(job: JobObjects, found: StoredObject | None) -> GenerationRecord | None:
    if found is None:
        return None
    with suppress(CorruptionError):
        return GenerationRecord.decode(found.data, job.url_of(FENCE), job.job_id)
    return None


def _read_object(job: JobObjects) -> StoredObject | None:
    try:
        return job.store.get(job.store_path(FENCE))
    except NotFoundError:
        return None


def _set_aside(job: JobObjects, data: bytes, repair: str) -> str:
    path = job.paths.set_aside(FENCE, repair)
    # The name is ours alone: writing it twice writes the same bytes, or those that were found last.
    job.store.put(job.store_path(path), data)
    return job.url_of(path)


def _replace(job: JobObjects, record: GenerationRecord, found: StoredObject | None) -> bool:
    """Write the fence, if it is still as it was found. A driver that claims meanwhile is not overwritten."""
    path = job.store_path(FENCE)
    if found is None:
        return isinstance(job.store.create(path, record.encode()), Created)
    return isinstance(job.store.compare_and_swap(path, record.encode(), found.version), Swapped)
