"""Publishes what the tasks of a batch wrote, on Spark's driver, and finishes open files at the end.

Each call is a driver with its own claim: it claims the job, completes an interrupted commit, and publishes
only if the epoch that the tasks continued from is still the newest. From one batch to the next, nothing is
remembered except what is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import msgspec
import pyarrow as pa

from lakestate.codec.engine_files import SINK_SCHEMA
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult, SubtaskReport
from lakestate.coordinator.epoch_progress import EpochFinished
from lakestate.coordinator.job_driver import DriverSettings, JobDriver
from lakestate.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError
from lakestate.observability.file_events import FileEvent
from lakestate.protocol.metadata import Manifest, NamedBytes
from lakestate.protocol.watermarks import source_watermark
from lakestate.runtime.sink_step import sink_committer
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.output_owner import OutputClaim
from lakestate.spark.data_source.job import (
    SINK,
    OpenedJob,
    claimed_since_error,
    pre_commit_parts,
    writers_with_open_files,
)
from lakestate.spark.data_source.options import DataSourceOptions
from lakestate.spark.data_source.position import BATCHES, BatchPosition, check_same_plan
from lakestate.storage.parallel import InlineExecutor, map_in_parallel

UPKEEP_EPOCHS = 10
"""Upkeep runs in the first epoch after a start of the query, and then every so many epochs."""

EpochId = tuple[int, int]
"""Epoch and generation."""


class WrittenPartition(msgspec.Struct, frozen=True):
    """What a task reports to the driver about its partition."""

    batch: BatchPosition
    writer: str
    parent: EpochId | None
    """The epoch that the task continued from."""
    state_id: str
    """Of the state that the task's files are named after."""
    report: bytes | None = None
    """None if the batch was already published, so that nothing was written."""
    latest_us: int | None = None
    rows: int = 0
    """Rows of the partition, written or not."""
    fence: int | None = None
    """See `BatchPlan`."""

    def encode(self) -> bytes:
        """Encode as MessagePack."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> WrittenPartition:
        """Decode what `encode` returned."""
        return msgspec.msgpack.decode(data, type=WrittenPartition)


def epoch_id(manifest: Manifest | None) -> EpochId | None:
    """Identifies an epoch: two drivers may both write an epoch with the same number."""
    return None if manifest is None else (int(manifest.epoch), int(manifest.generation))


def commit_batch(job: OpenedJob, written: Sequence[WrittenPartition], batch_id: int) -> None:
    """Publish and commit a batch. If it is already published, only complete its commit.

    Raises ConflictError if another epoch was published meanwhile: the batch has to be written again.
    Raises IncompatibleStateError if Spark planned a published batch a second time.
    """
    batch = msgspec.structs.replace(
        _one_batch(written, batch_id),
        rows=sum(part.rows for part in written),
        plan_digest=job.plan_digest(batch_id),
    )
    newest = job.newest()
    planned = written[0].fence
    if not _has_batch(newest, batch, job.state):
        # Before the claim: a driver that was overtaken must not disturb its successor.
        if epoch_id(newest) != written[0].parent:
            raise _overtaken_error(job, newest)
        job.require_fence(planned)
    driver = _driver(job, newest, [part.writer for part in written], batch)
    try:
        driver.start(reopen=True)
        if _has_batch(driver.parent, batch, job.state):
            return
        if planned is not None and driver.claim.generation != planned + 1:
            raise claimed_since_error(job.state, driver.claim.generation - 1, planned)
        continued = {(part.parent, part.state_id, part.fence) for part in written}
        if continued != {(epoch_id(driver.parent), driver.claim.state_id, planned)}:
            raise _overtaken_error(job, driver.parent)
        outcome = driver.run_epoch(driver.next_epoch(), lambda plan: _result(job, plan, written, batch))
        if not isinstance(outcome, EpochFinished) and not _has_batch(driver.parent, batch, job.state):
            raise _overtaken_error(job, driver.parent)
    finally:
        driver.stop()


def finish_files(**options: Any) -> list[str]:
    """Finish the files that a stopped query left open, and make them visible. Returns their names.

    Takes the options of the query. Rows in open files are stored but not visible; without this call
    they become visible when the query continues and its files are rolled.

    >>> import lakestate as ls
    >>> ls.finish_files(path="/data/out", checkpointLocation="/tmp/no-such-query")
    Traceback (most recent call last):
    lakestate.errors.NotFoundError: no query has written to this sink yet: file:///tmp/no-such-query/...
    """
    read, newest = _newest_of(options)
    job = OpenedJob(read, _row_schema(newest))
    # Before the job is claimed: files that cannot be finished must not stop a query that is running.
    job.check()
    job.claim_output(newest.state_id, OutputClaim.OWN)
    reached = BatchPosition.from_manifest(newest)
    driver = _driver(job, newest, (), None)
    try:
        driver.start(reopen=True)
        if epoch_id(driver.parent) != epoch_id(newest):
            raise _still_open_error(job, driver.parent)
        if not writers_with_open_files(newest):
            return []
        outcome = driver.run_epoch(
            driver.next_epoch(), lambda plan: _result(job, plan, (), reached), Ending.FINISH_FILES
        )
        if not isinstance(outcome, EpochFinished):
            raise _still_open_error(job, driver.parent)
    finally:
        driver.stop()
    assert driver.parent is not None
    return sorted(file.path for part in _pre_commits(driver.parent) for file in part.finished)


def take_over_output(**options: Any) -> None:
    """Make the output that of this query, after its checkpoint was moved. Takes the options of the query.

    An output that another job with a copy of the same state has marked as its own is refused. Call this
    once if what ran at the old place of the checkpoint never runs again: each would clean up what the
    other has open.

    >>> import lakestate as ls
    >>> ls.take_over_output(path="/data/out", checkpointLocation="/tmp/no-such-query")
    Traceback (most recent call last):
    lakestate.errors.NotFoundError: no query has written to this sink yet: file:///tmp/no-such-query/...
    """
    read, newest = _newest_of(options)
    OpenedJob(read, pa.schema([])).claim_output(newest.state_id, OutputClaim.TAKE_OVER)


def _newest_of(options: Mapping[str, Any]) -> tuple[DataSourceOptions, Manifest]:
    """The options of a query, and its newest epoch."""
    read = DataSourceOptions.of({name: str(value) for name, value in options.items()})
    newest = OpenedJob(read, pa.schema([])).newest()
    if newest is None:
        raise NotFoundError(
            "no query has written to this sink yet",
            object_name=f"{read.state.url}/{read.job_id}",
            action="pass the same checkpointLocation, or stateLocation and jobId, as the query",
        )
    return read, newest


def _result(
    job: OpenedJob, plan: EpochPlan, written: Sequence[WrittenPartition], batch: BatchPosition
) -> EpochResult:
    reports = [_report(part) for part in written]
    there = {part.writer for part in written}
    idle = [] if plan.parent is None else sorted(writers_with_open_files(plan.parent) - there)
    reports += map_in_parallel(lambda name: job.run_writer(name, plan, ()), idle)
    return EpochResult(
        reports=tuple(reports),
        sources=(batch.offsets(_watermark_us(job, plan, written)),),
        engine_files=(NamedBytes(SINK_SCHEMA, job.schema.serialize().to_pybytes()),),
        rows={BATCHES: sum(step.rows_in for report in reports for step in report.metrics.values())},
    )


def _report(part: WrittenPartition) -> SubtaskReport:
    if part.report is None:
        raise CorruptionError(
            "a task that wrote its batch sent no report", object_name=f"writer {part.writer}"
        )
    return SubtaskReport.decode(part.report)


def _watermark_us(job: OpenedJob, plan: EpochPlan, written: Sequence[WrittenPartition]) -> int | None:
    before = () if plan.parent is None else plan.parent.sources
    previous_us = next((source.watermark_us for source in before if source.source == BATCHES), None)
    times = [part.latest_us for part in written if part.latest_us is not None]
    return source_watermark(previous_us, max(times, default=None), job.options.delay_us)


def _one_batch(written: Sequence[WrittenPartition], batch_id: int) -> BatchPosition:
    """The one batch that all tasks wrote."""
    batches = {part.batch for part in written}
    writers = {part.writer for part in written}
    if len(batches) != 1 or len(writers) != len(written) or {b.batch_id for b in batches} != {batch_id}:
        raise InvalidInputError(
            "Spark's tasks did not write one batch",
            found=f"{len(written)} partitions of {len(writers)} writers, of {sorted(map(str, batches))}",
            expected=f"each partition of batch {batch_id}, once",
        )
    return next(iter(batches))


def _driver(
    job: OpenedJob, newest: Manifest | None, writers: Iterable[str], batch: BatchPosition | None
) -> JobDriver:
    """A driver for one epoch, whose writers are those of the batch and those with open files."""
    steps = {*writers, *(() if newest is None else writers_with_open_files(newest))}
    stored = () if newest is None else [entry.operator_id for entry in newest.operators]
    commit = sink_committer(job.options.sink, SINK)
    return JobDriver(
        job.backend,
        job.job_id,
        dict.fromkeys(steps, 1),
        dict.fromkeys((*steps, *stored), commit),
        timed_sources=job.timed_sources,
        # No state of a writer has a time to live.
        settings=DriverSettings(job.options.retention, compaction=None, clock_tolerance_ms=None),
        clean_up=lambda manifest: _clean_up(job, manifest),
        tell_files=_print_files if job.options.log_files else lambda events: None,
        upkeep_executor=InlineExecutor() if _is_upkeep_due(newest, batch) else _Never(),
    )


def _print_files(events: Sequence[FileEvent]) -> None:
    """Print to the driver's standard error, which Spark takes from this process."""
    for event in events:
        print(f"lakestate: {event}", file=sys.stderr, flush=True)


def _is_upkeep_due(newest: Manifest | None, batch: BatchPosition | None) -> bool:
    if newest is None or batch is None:
        return batch is None
    is_first_of_run = BatchPosition.from_manifest(newest).run_id != batch.run_id
    return is_first_of_run or newest.epoch.next() % UPKEEP_EPOCHS == 0


def _clean_up(job: OpenedJob, manifest: Manifest) -> None:
    """Clean up after all writers at once: they write for one sink."""
    job.options.sink.committer().clean_up(job.job_id, manifest.epoch, pre_commit_parts(manifest))


def _pre_commits(manifest: Manifest) -> list[PreCommit]:
    return [PreCommit.decode(part) for part in pre_commit_parts(manifest)]


def _has_batch(manifest: Manifest | None, batch: BatchPosition, state: str) -> bool:
    if manifest is None:
        return False
    reached = BatchPosition.from_manifest(manifest)
    if (reached.query_id, reached.batch_id) != (batch.query_id, batch.batch_id):
        return False
    check_same_plan(reached, batch, state)
    return True


def _row_schema(manifest: Manifest) -> pa.Schema:
    data = next((file.data for file in manifest.engine_files if file.name == SINK_SCHEMA), None)
    try:
        return pa.ipc.read_schema(pa.py_buffer(data or b""))
    except (pa.ArrowInvalid, OSError) as cause:
        raise CorruptionError(
            "the schema of the rows is not in the manifest",
            object_name=f"epoch {manifest.epoch} of job {manifest.job_id}",
            found=str(cause),
            expected=SINK_SCHEMA,
        ) from cause


def _overtaken_error(job: OpenedJob, newest: Manifest | None) -> ConflictError:
    return ConflictError(
        "another driver has published an epoch since this batch was planned",
        object_name=job.state,
        found=_epoch_text(newest),
        action="let only one query write with this state; restart it to write the batch again",
    )


def _still_open_error(job: OpenedJob, newest: Manifest | None) -> ConflictError:
    return ConflictError(
        "a query published a batch while its files were being finished; they are still open",
        object_name=job.state,
        found=_epoch_text(newest),
        action="stop the query, then call finish_files again",
    )


def _epoch_text(newest: Manifest | None) -> str:
    return "no epoch" if newest is None else f"epoch {newest.epoch} of generation {newest.generation}"


class _Never(Executor):
    """Runs nothing: upkeep is left to a later epoch."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return a cancelled future."""
        future: Future[Any] = Future()
        future.cancel()
        return future
