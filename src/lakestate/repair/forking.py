"""`fork`: a new job that begins with the state of an epoch of another job, offsets included.

Nothing is copied: the first epoch of the fork refers to the objects of its parent, under the same number.
The order makes it complete or not there. A tag in the parent keeps the epoch; the fence of the new job says
for good which epoch it begins with, so that repeated calls make the same fork; the epoch record publishes it.
A job with such a fence and no epoch cannot be started. The parent is not claimed, and may go on running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from lakestate.codec import decode_manifest
from lakestate.codec.engine_files import files_of_another_query
from lakestate.coordinator.commit import commit_epoch
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.publish import publish_epoch
from lakestate.coordinator.retention.forks import delete_useless_tags, keep_for_fork
from lakestate.coordinator.retention.tags import withdraw_tag
from lakestate.errors import ConflictError, FencedError, InvalidInputError, NotFoundError, OutcomeUnknownError
from lakestate.job.named_epochs import NEWEST, find_epoch
from lakestate.job.objects import JobObjects, Versioned
from lakestate.job.published_epochs import open_epoch, open_newest_epoch
from lakestate.protocol.metadata import ForkedFrom, Manifest, OperatorEntry
from lakestate.protocol.names import did_you_mean
from lakestate.protocol.paths import FENCE, fork_tag
from lakestate.protocol.publication import Published
from lakestate.protocol.records import EpochRecord, GenerationRecord, TagRecord
from lakestate.protocol.relative_path import with_origin
from lakestate.protocol.values import Epoch, ForkPoint, ObjectRef
from lakestate.repair.engine_position import refuse_data_source
from lakestate.repair.open_files import drop_commit_data
from lakestate.repair.pre_commits import committed_subtasks
from lakestate.repair.whole_epoch import require_whole
from lakestate.sinks.files.sink import file_sink_tables

EpochName = Epoch | int | str | datetime
"""A number, "newest", the name of a tag, or a time."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A job that begins with the state of an epoch of another job."""

    job_id: str
    parent: ForkPoint
    """The epoch that it begins with; its own first epoch has the same number."""
    is_muted: bool
    """Whether its sinks write nothing, and `on_commit` of its operators is not called."""
    left_out: tuple[str, ...] = ()
    """Sinks and operators of the parent whose state the fork does not have."""


def fork(
    backend: ParquetBackend,
    job_id: str,
    new_job_id: str,
    epoch: EpochName = NEWEST,
    *,
    muted: bool = True,
    drop: Collection[str] = (),
) -> Fork:
    """Make a new job from an epoch of another one: its number, a tag, a time, or the newest.

    Nothing is copied, and the parent is not disturbed. What the fork shares with it is kept by the parent
    for as long as an epoch of the fork needs it. The fork begins without the state of sinks: files that are
    open in the epoch stay with the parent, which finishes them. While it is muted, its sinks write
    nothing and `on_commit` of its operators is not called, until it is started with `unmute=True`. `drop`
    names further operators whose state the fork leaves behind.

    Repeating a call completes or returns the same fork. Raises ConflictError if the new job exists,
    NotFoundError if the epoch does not, and CorruptionError if something is missing that the fork needs, or
    has another size.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-fork", cache_bytes=0)
    >>> task = ls.TaskInfo(job_id="job", operator_id="op")
    >>> tables = ls.TableManager.load(task, [ls.GlobalKeyedTable("t", key=str, value=int)], backend, None)
    >>> tables.global_keyed("t").insert("total", 42)
    >>> done = tables.checkpoint(epoch=1, min_epoch=1, watermark=None, then_stop=False)
    >>> record = backend.write_checkpoint_metadata("job", 1, [done])
    >>> str(ls.fork(backend, "job", "trial").parent)
    'job@1'
    >>> ls.read_state("memory://docs-fork", "trial", "op", "t").to_pylist()
    [{'key': 'total', 'value': 42}]
    """
    return _Forking(backend, job_id, new_job_id, epoch, drop, muted=muted).run()


def preview_fork(
    backend: ParquetBackend,
    job_id: str,
    new_job_id: str,
    epoch: EpochName = NEWEST,
    *,
    muted: bool = True,
    drop: Collection[str] = (),
) -> Fork:
    """What `fork` would make. Refused for the same reasons; nothing is written."""
    return _Forking(backend, job_id, new_job_id, epoch, drop, muted=muted).preview()


class _Forking:
    """One fork on its way."""

    def __init__(
        self,
        backend: ParquetBackend,
        job_id: str,
        new_job_id: str,
        epoch: EpochName,
        drop: Collection[str],
        *,
        muted: bool,
    ) -> None:
        if job_id == new_job_id:
            raise InvalidInputError("a job cannot be forked into itself", found=job_id)
        self._backend = backend
        self._parent = backend.objects(job_id)
        self._job = backend.objects(new_job_id)
        self._epoch = epoch
        self._drop = frozenset(drop)
        self._is_muted = muted

    def preview(self) -> Fork:
        """What would be made."""
        begun = self._begun()
        if begun is not None and (done := self._done()) is not None:
            return done
        number = find_epoch(self._parent, self._epoch) if begun is None else _point(begun).epoch
        return self._fork(self._open(number)[1])

    def run(self) -> Fork:
        """Make the fork, or complete one that was begun."""
        while True:
            begun = self._begun()
            if begun is not None and (done := self._done()) is not None:
                return done
            claim = self._begin() if begun is None else begun
            if claim is not None:
                return self._publish(claim)

    def _begun(self) -> GenerationRecord | None:
        """The fence of the new job, if it is one of this fork; None if there is no such job."""
        fence = self._job.read_fence() or self._refuse_remains()
        if fence is None:
            return None
        point = fence.record.fork_point
        if point is None or point.job_id != self._parent.job_id:
            raise _exists(self._job, "another job" if point is None else f"a fork of {point}")
        if self._epoch != NEWEST and find_epoch(self._parent, self._epoch) != point.epoch:
            raise _exists(self._job, f"a fork of {point}")
        return fence.record

    def _refuse_remains(self) -> Versioned[GenerationRecord] | None:
        """None if there are no objects of the new job; its fence, if it was written a moment ago."""
        if not any(True for _ in self._job.store.list(self._job.store_path(""))):
            return None
        fence = self._job.read_fence()
        if fence is None:
            raise _exists(self._job, "objects of a job without a fence")
        return fence

    def _done(self) -> Fork | None:
        """The fork, if it has been published."""
        newest = open_newest_epoch(self._job)
        if newest is None:
            return None
        if newest.forked_from is None:
            raise _exists(self._job, f"epoch {newest.epoch}, which is of no fork")
        found = Fork(self._job.job_id, newest.forked_from.point, newest.is_muted)
        if found.is_muted and not self._is_muted:
            raise ConflictError(
                f"the fork exists, and is muted; job {found.job_id}",
                object_name=self._job.url_of(""),
                action="start it with unmute=True: it writes its output from then on",
            )
        return found

    def _begin(self) -> GenerationRecord | None:
        """Keep the epoch in the parent, then say in the fence what the new job is. None if it has one now."""
        number = find_epoch(self._parent, self._epoch)
        record, source = self._open(number)
        ambient = self._backend.ambient
        claim = GenerationRecord(
            self._job.job_id,
            # Objects of the parent have its generations, and no epoch refers to a higher one than its own.
            source.generation,
            ambient.new_id(),
            ambient.now_ms(),
            ambient.new_id(),
            str(ForkPoint(self._parent.job_id, number)),
        )
        tag = keep_for_fork(self._parent, record, self._job.job_id, claim.state_id, ambient)
        if self._create_fence(claim):
            return claim
        withdraw_tag(self._parent, tag)
        return None

    def _create_fence(self, claim: GenerationRecord) -> bool:
        """Whether the fence is ours."""
        try:
            return self._job.swap(FENCE, claim, None)
        except OutcomeUnknownError:
            found = self._job.read_fence()
            if found is None:
                # It may still arrive: then the tag must be there. Repeating the call completes the fork.
                raise
            return found.record == claim

    def _publish(self, claim: GenerationRecord) -> Fork:
        point = _point(claim)
        source = self._kept_epoch(claim)
        self._refuse_unknown(source)
        manifest = self._manifest(source, claim)
        # A driver that has claimed the fork meanwhile found it complete: somebody else has published it.
        with suppress(FencedError):
            outcome = publish_epoch(self._job, claim, manifest, self._backend.ambient)
            if isinstance(outcome, Published):
                commit_epoch(self._job, claim, outcome.permit, manifest, {})
        delete_useless_tags(self._parent, self._job, point)
        done = self._done()
        if done is None:
            raise ConflictError(
                "the fork was deleted while it was made",
                object_name=self._job.url_of(""),
                action="make it again",
            )
        return replace(done, left_out=self._left_out(source))

    def _open(self, number: Epoch) -> tuple[EpochRecord, Manifest]:
        record, source = open_epoch(self._parent, number)
        refuse_data_source(source, "be forked")
        self._refuse_unknown(source)
        require_whole(self._parent, source, self._is_kept)
        return record, source

    def _kept_epoch(self, claim: GenerationRecord) -> Manifest:
        """The epoch that the tag of the fork keeps."""
        path = self._parent.paths.tag(fork_tag(claim.state_id))
        tag = self._parent.read_tag(path)
        if tag is None:
            raise NotFoundError(
                f"nothing keeps {claim.forked_from} for the fork",
                object_name=self._parent.url_of(path),
                action=f"delete {self._job.url_of(FENCE)}, and make the fork again",
            )
        return _read_tagged(self._parent, tag)

    def _refuse_unknown(self, source: Manifest) -> None:
        known = [entry.operator_id for entry in source.operators]
        for name in sorted(self._drop.difference(known)):
            raise NotFoundError(
                f"epoch {source.epoch} of job {source.job_id} has no operator to drop",
                object_name=name,
                found=", ".join(sorted(known)) or "no operator",
                action=did_you_mean(name, known),
            )

    def _fork(self, source: Manifest) -> Fork:
        point = ForkPoint(source.job_id, source.epoch)
        return Fork(self._job.job_id, point, self._is_muted, self._left_out(source))

    def _left_out(self, source: Manifest) -> tuple[str, ...]:
        kept = {entry.operator_id for entry in self._kept_operators(source)}
        return tuple(each.operator_id for each in source.operators if each.operator_id not in kept)

    def _kept_operators(self, source: Manifest) -> Iterator[OperatorEntry]:
        return filter(self._is_kept, source.operators)

    def _is_kept(self, entry: OperatorEntry) -> bool:
        return entry.operator_id not in self._drop and not _is_sink(self._parent, entry)

    def _manifest(self, source: Manifest, claim: GenerationRecord) -> Manifest:
        now_ms = self._backend.ambient.now_ms()
        return replace(
            source,
            job_id=self._job.job_id,
            generation=claim.generation,
            parent=None,
            started_ms=now_ms,
            finished_ms=max(now_ms, source.finished_ms),
            operators=tuple(self._operator(each, source, claim) for each in self._kept_operators(source)),
            sinks=(),
            engine_files=files_of_another_query(source.engine_files, source.epoch, claim.state_id),
            engine_logs=tuple(
                replace(log, pieces=tuple(_shared(piece, source.job_id) for piece in log.pieces))
                for log in source.engine_logs
            ),
            state_id=claim.state_id,
            went_back=None,
            forked_from=ForkedFrom(source.job_id, source.epoch, self._is_muted),
        )

    def _operator(self, entry: OperatorEntry, source: Manifest, claim: GenerationRecord) -> OperatorEntry:
        committed = committed_subtasks(entry, source)
        subtasks = [replace(each, metadata=_shared(each.metadata, source.job_id)) for each in entry.subtasks]
        return replace(
            entry,
            subtasks=tuple(
                drop_commit_data(each, self._backend, claim, source.epoch)
                if each.subtask_index in committed
                else replace(each, summary=replace(each.summary, bytes_written=0))
                for each in subtasks
            ),
        )


def _point(claim: GenerationRecord) -> ForkPoint:
    point = claim.fork_point
    assert point is not None, "the fence of a fork says what it is"
    return point


def _shared(ref: ObjectRef, job_id: str) -> ObjectRef:
    return replace(ref, path=with_origin(ref.path, job_id))


def _read_tagged(job: JobObjects, tag: TagRecord) -> Manifest:
    """The manifest that a tag names. The record of the epoch may be gone: the tag of a fork is enough."""
    where = job.url_of(tag.manifest.path)
    return decode_manifest(job.read_verified(tag.manifest), where, job.job_id)


def _is_sink(job: JobObjects, entry: OperatorEntry) -> bool:
    """Whether what is stored is the state of a ready sink: files that it keeps open, or rows to deliver."""
    (stored,) = job.read_subtasks(entry.subtasks[:1])
    if any(config.table_type.is_of_one_epoch for config in stored.configs):
        return True
    found = {config.name: config.schema_fingerprint for config in stored.configs}
    tables = [table.config for table in file_sink_tables()]
    return all(found.get(table.name) == table.schema_fingerprint for table in tables)


def _exists(job: JobObjects, found: str) -> ConflictError:
    return ConflictError(
        f"job {job.job_id} exists already",
        object_name=job.url_of(""),
        found=found,
        action="choose another name for the fork, or delete the objects of that job",
    )
