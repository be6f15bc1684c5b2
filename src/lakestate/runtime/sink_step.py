"""A sink as a step of a stage, and its committer as the driver calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakestate.coordinator.commit import JobCommitter
from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.coordinator.upkeep import Takeover
from lakestate.errors import InvalidInputError, LakestateError, OperatorError
from lakestate.job.objects import JobObjects
from lakestate.job.state_backend import StateBackend
from lakestate.observability.file_events import FileEvent
from lakestate.observability.time_parts import SINK, timed
from lakestate.protocol.metadata import Manifest, SinkPreCommit
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import FIRST_EPOCH
from lakestate.runtime.conform import conform_input
from lakestate.runtime.steps import StepScope
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.sink import EarlierAttempts, Sink, SinkContext, SinkWriter
from lakestate.tables.contract import Table


@dataclass(frozen=True, slots=True)
class SinkStep:
    """A sink as a step."""

    step_id: str
    sink: Sink
    schema: pa.Schema
    event_time: str | None = None
    sink_id: str | None = None
    """The sink, if it is not the step itself; see `SinkContext`."""

    def tables(self) -> Sequence[Table]:
        """The sink's tables."""
        return self.sink.tables()

    def open(self, scope: StepScope) -> RunningSink:
        """Open a writer that continues from what the tables hold."""
        events: list[FileEvent] = []
        context = SinkContext(
            task=scope.task,
            epoch=scope.epoch,
            tables=scope.tables,
            ambient=scope.ambient,
            watermark_us=scope.times.watermark_us,
            schema=self.schema,
            event_time=self.event_time,
            sink_id=self.sink_id,
            on_file_event=events.append,
            processing_time_us=scope.times.processing_time_us,
        )
        return RunningSink(self.sink.writer(context), self.schema, scope, events)


class RunningSink:
    """A sink's writer at work. It takes rows and yields none."""

    due_us: int | None = None
    """What a sink waits for is in the manifest: see `sinks_due_us`."""

    def __init__(
        self, writer: SinkWriter, schema: pa.Schema, scope: StepScope, file_events: Sequence[FileEvent]
    ) -> None:
        self.file_events = file_events
        self._writer = writer
        self._schema = schema
        self._scope = scope

    def start(self) -> Iterator[pa.RecordBatch]:
        """Do nothing."""
        return iter(())

    @timed(SINK)
    def process(self, input_name: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Write rows."""
        rows = conform_input(batch, self._schema, f"input of {self._scope.where}")
        try:
            self._writer.write(rows)
        except LakestateError as cause:
            if isinstance(cause, InvalidInputError):
                raise OperatorError(
                    f"sink refused rows: {cause.summary}",
                    object_name=", ".join(filter(None, (cause.object_name, self._scope.where))),
                    found=cause.found,
                    expected=cause.expected,
                    action=cause.action,
                ) from cause
            raise
        return iter(())

    def end_rows(self) -> Iterator[pa.RecordBatch]:
        """Do nothing: rows are written as they come."""
        return iter(())

    def watermark(self) -> Iterator[pa.RecordBatch]:
        """Do nothing: a writer has the watermark in its context."""
        return iter(())

    def close(self) -> Iterator[pa.RecordBatch]:
        """Do nothing: `finish` closes the files."""
        return iter(())

    def end_epoch(self) -> Iterator[pa.RecordBatch]:
        """Do nothing: `finish` ends the epoch."""
        return iter(())

    @timed(SINK)
    def finish(self, *, finish_files: bool) -> None:
        """Put what is needed to continue open files into the tables."""
        self._writer.finish(finish_files=finish_files)

    def abandon(self) -> None:
        """Release the writer."""
        self._writer.abandon()


def sink_clean_up(sinks: Mapping[str, Sink], job_id: str) -> Callable[[Manifest], None]:
    """What the driver calls beside the stream to remove what failed attempts left in sinks."""

    def clean_up(manifest: Manifest) -> None:
        failed: list[LakestateError] = []
        for sink_id, sink in sinks.items():
            try:
                if (parts := _parts_to_keep(sink, sink_id, manifest)) is not None:
                    sink.committer().clean_up(job_id, manifest.epoch, parts)
            except LakestateError as error:
                # The other sinks are still cleaned up.
                failed.append(error)
        if failed:
            raise failed[0]

    return clean_up


def _parts_to_keep(sink: Sink, sink_id: str, manifest: Manifest) -> list[bytes] | None:
    """What an epoch left in a sink. If that is nothing, attempts that failed may have left something."""
    for pre_commit in manifest.sinks:
        if pre_commit.sink_id == sink_id:
            return decode_pre_commits(pre_commit.data, f"manifest of epoch {manifest.epoch}")
    empty = sink.empty_pre_commit(manifest.job_id, sink_id, manifest.state_id)
    return None if empty is None else [empty]


def output_claim(
    sinks: Mapping[str, Sink], backend: StateBackend, job_id: str, claim: OutputClaim = OutputClaim.OWN
) -> Callable[[str], None]:
    """What the driver calls at its start to own the outputs of sinks, or to be refused."""

    def claim_outputs(state_id: str) -> None:
        for sink_id, sink in sinks.items():
            sink.claim_output(OutputOwner(job_id, sink_id, state_id, backend.location), claim)

    return claim_outputs


def has_open_files(sinks: Mapping[str, Sink], manifest: Manifest) -> bool:
    """Whether an epoch left output files open."""
    return any(sink.has_open_files(_pre_commits(sink_id, [manifest])) for sink_id, sink in sinks.items())


def sinks_due_us(sinks: Mapping[str, Sink], manifest: Manifest) -> int | None:
    """The first processing time for which an epoch's sinks want another one, even without rows."""
    times_ms = (
        sink.due_ms(_pre_commits(sink_id, [manifest]))
        for sink_id, sink in sinks.items()
        if sink.follows_clock
    )
    return min((each * 1000 for each in times_ms if each is not None), default=None)


def sink_take_over(sinks: Mapping[str, Sink]) -> Callable[[Takeover], None]:
    """What a driver calls when it has claimed a job: each sink removes what failed drivers left in it."""

    def take_over(found: Takeover) -> None:
        for sink_id, sink in sinks.items():
            sink.clear_earlier_attempts(_earlier_attempts(sink_id, found))

    return take_over


def _earlier_attempts(sink_id: str, found: Takeover) -> EarlierAttempts:
    claim = found.claim
    newest = [] if found.newest is None else [found.newest]
    return EarlierAttempts(
        job_id=claim.job_id,
        sink_id=sink_id,
        state_id=claim.state_id,
        generation=claim.generation,
        newest=_pre_commits(sink_id, newest),
        pending=lambda: _pre_commits(sink_id, found.pending()),
        job=found.job,
        following=FIRST_EPOCH if found.newest is None else found.newest.epoch.next(),
    )


def _pre_commits(sink_id: str, manifests: Sequence[Manifest]) -> list[bytes]:
    return [
        part
        for manifest in manifests
        for sink in manifest.sinks
        if sink.sink_id == sink_id
        for part in decode_pre_commits(sink.data, f"manifest of epoch {manifest.epoch}")
    ]


def sink_committer(sink: Sink, sink_id: str | None = None) -> JobCommitter:
    """What the driver calls to commit an epoch of a sink.

    `sink_id` is the sink, if it is not the step that wrote for it; see `SinkContext`.
    """

    def commit(job: JobObjects, permit: CommitPermit, pre_commit: SinkPreCommit) -> Sequence[FileEvent]:
        parts = decode_pre_commits(pre_commit.data, permit.manifest.path)
        sink.job_committer(job).commit(permit, parts)
        return sink.committed_files(permit.job_id, sink_id or pre_commit.sink_id, permit.epoch, parts)

    return JobCommitter(commit)
