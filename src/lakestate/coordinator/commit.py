"""Committing a published epoch: its sinks, and the operators that have `on_commit`.

Idempotent, and possible only with a permit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from lakestate.coordinator.claim import check_fence
from lakestate.coordinator.epoch_plan import decode_commit_parts
from lakestate.errors import InvalidInputError, OperatorError, OutcomeUnknownError
from lakestate.job.objects import JobObjects
from lakestate.observability.file_events import FileEvent, TellFileEvents, log_file_events
from lakestate.protocol.metadata import CommitPart, Manifest, SinkPreCommit
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.records import CommittedRecord, GenerationRecord
from lakestate.protocol.values import Epoch, Generation

Committer = Callable[[CommitPermit, SinkPreCommit], Sequence[FileEvent] | None]
"""Makes the output of one sink visible, and returns which files those are, if it writes files.

Called again after a crash, so committing twice must succeed.
"""


@dataclass(frozen=True, slots=True)
class OperatorCommit:
    """What the subtasks of an operator left to commit in one published epoch.

    It is the same whenever and by whichever driver it is committed. `state_id` identifies the state of the
    job: a job whose checkpoints were deleted begins again with epoch 1 and another `state_id`.

    >>> parts = (CommitPart(0, "outbox", b"a"), CommitPart(2, "outbox", b"c"))
    >>> OperatorCommit("job", "f00d", "op", Epoch(7), Generation(1), parts).data
    (b'a', b'c')
    """

    job_id: str
    state_id: str
    operator_id: str
    epoch: Epoch
    generation: Generation
    """The driver that published the epoch, which need not be the one that commits it."""
    parts: tuple[CommitPart, ...]
    """One for each subtask and table with commit data, in the order of subtasks."""

    @property
    def data(self) -> tuple[bytes, ...]:
        """The commit data alone, in the order of subtasks."""
        return tuple(part.data for part in self.parts)


@dataclass(frozen=True, slots=True)
class JobCommitter:
    """A committer that is told where the job's own objects are: rows to deliver may be among them."""

    commit: Callable[[JobObjects, CommitPermit, SinkPreCommit], Sequence[FileEvent] | None]
    """As `Committer` says."""


OnCommit = Callable[[OperatorCommit], object]
"""Commits what the subtasks of an operator left. Called again after a crash."""

OnCommits = Mapping[str, OnCommit]
"""What commits, by operator."""


@dataclass(frozen=True, slots=True)
class OperatorCommitter:
    """Calls the `on_commit` of an operator."""

    on_commit: OnCommit

    def commit(self, permit: CommitPermit, manifest: Manifest, pre_commit: SinkPreCommit) -> None:
        """Call `on_commit` for a published epoch. What it raises is wrapped, and is the cause."""
        commit = OperatorCommit(
            permit.job_id,
            manifest.state_id,
            pre_commit.sink_id,
            permit.epoch,
            permit.record.generation,
            tuple(decode_commit_parts(pre_commit.data, permit.manifest.path)),
        )
        try:
            self.on_commit(commit)
        except Exception as cause:
            raise OperatorError(
                f"on_commit raised {type(cause).__name__}",
                object_name=f"operator {commit.operator_id} of job {commit.job_id}, epoch {commit.epoch}",
                found=str(cause) or repr(cause),
                action="the epoch is published: correct the cause, and start again to call on_commit again",
            ) from cause


Committers = Mapping[str, Committer | JobCommitter | OperatorCommitter]
"""What commits, by sink or operator, in the order in which it is called."""


def commit_epoch(
    job: JobObjects,
    claim: GenerationRecord,
    permit: CommitPermit,
    manifest: Manifest,
    committers: Committers,
    tell_files: TellFileEvents = log_file_events,
) -> None:
    """Commit every sink and operator of the epoch, in the order of `committers`, then write the marker.

    Which files became visible is told before the marker is written, so that each is told of at least once.

    The fence is read first: a driver that was suspended between publishing and committing leaves the
    commit to its successor. A commit that slips through is harmless, because committing is idempotent.
    """
    if (manifest.epoch, manifest.generation) != (permit.epoch, permit.record.generation):
        raise AssertionError(f"the permit is for epoch {permit.epoch}, the manifest of {manifest.epoch}")
    require_committers(manifest, committers.keys())
    check_fence(job, claim)
    places = {sink_id: place for place, sink_id in enumerate(committers)}
    # Of a muted epoch, never: a later start that is asked to write would otherwise begin with its rows.
    visible = () if manifest.is_muted else manifest.sinks
    for sink in sorted(visible, key=lambda sink: places[sink.sink_id]):
        committer = committers[sink.sink_id]
        match committer:
            case OperatorCommitter():
                committer.commit(permit, manifest, sink)
            case JobCommitter():
                tell_files(committer.commit(job, permit, sink) or ())
            case _:
                tell_files(committer(permit, sink) or ())
    record = permit.record
    marker = CommittedRecord(job.job_id, record.epoch, record.generation, record.manifest)
    _write_marker(job, marker)


def require_committers(manifest: Manifest, committers: Collection[str]) -> None:
    """Refuse to commit an epoch that has output of a sink or operator which the job no longer has."""
    unknown = sorted({sink.sink_id for sink in manifest.sinks} - {*committers})
    if unknown:
        raise InvalidInputError(
            "an epoch has output of sinks or operators that this job cannot commit",
            object_name=f"epoch {manifest.epoch} of job {manifest.job_id}",
            found=", ".join(unknown),
            expected=", ".join(sorted(committers)) or "none",
            action="start once with them as they were, so that their output is committed, then remove them",
        )


def _write_marker(job: JobObjects, marker: CommittedRecord) -> None:
    try:
        job.store.create(job.store_path(job.paths.commit_marker(marker.epoch)), marker.encode())
    except OutcomeUnknownError:
        # The marker only saves work: without it the next start commits again.
        return
