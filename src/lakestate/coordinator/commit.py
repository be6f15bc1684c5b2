"""Committing the sinks of a published epoch. Idempotent, and possible only with a permit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakestate.coordinator.claim import check_fence
from lakestate.errors import InvalidInputError, OutcomeUnknownError
from lakestate.job.objects import JobObjects
from lakestate.observability.file_events import FileEvent, TellFileEvents, log_file_events
from lakestate.protocol.metadata import Manifest, SinkPreCommit
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.records import CommittedRecord, GenerationRecord

Committer = Callable[[CommitPermit, SinkPreCommit], Sequence[FileEvent] | None]
"""Makes the output of one sink visible, and returns which files those are, if it writes files.

Called again after a crash, so committing twice must succeed.
"""


def commit_epoch(
    job: JobObjects,
    claim: GenerationRecord,
    permit: CommitPermit,
    manifest: Manifest,
    committers: Mapping[str, Committer],
    tell_files: TellFileEvents = log_file_events,
) -> None:
    """Commit every sink of the epoch, in the order of `committers`, then write the marker that says so.

    Which files became visible is told before the marker is written, so that each is told of at least once.

    The fence is read first: a driver that was suspended between publishing and committing leaves the
    commit to its successor. A commit that slips through is harmless, because committing is idempotent.
    """
    if (manifest.epoch, manifest.generation) != (permit.epoch, permit.record.generation):
        raise AssertionError(f"the permit is for epoch {permit.epoch}, the manifest of {manifest.epoch}")
    unknown = sorted({sink.sink_id for sink in manifest.sinks} - committers.keys())
    if unknown:
        raise InvalidInputError(
            f"epoch {manifest.epoch} has output of sinks that this job does not declare",
            object_name=job.url_of(permit.manifest.path),
            found=", ".join(unknown),
            expected=", ".join(sorted(committers)) or "no sink",
            action="start once with these sinks, so that their output is committed, then remove them",
        )
    check_fence(job, claim)
    places = {sink_id: place for place, sink_id in enumerate(committers)}
    for sink in sorted(manifest.sinks, key=lambda sink: places[sink.sink_id]):
        tell_files(committers[sink.sink_id](permit, sink) or ())
    record = permit.record
    marker = CommittedRecord(job.job_id, record.epoch, record.generation, record.manifest)
    _write_marker(job, marker)


def _write_marker(job: JobObjects, marker: CommittedRecord) -> None:
    try:
        job.store.create(job.store_path(job.paths.commit_marker(marker.epoch)), marker.encode())
    except OutcomeUnknownError:
        # The marker only saves work: without it the next start commits again.
        return
