"""The sink of a query as a job: the plan of a batch, and what a task does with it.

Spark does not say how many partitions a batch has before it is written. So each partition number has
its own writer: an operator with one subtask, which keeps the open files of that number. The driver runs
the writers of numbers that a batch does not have, and drops writers without open files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.compact import compact_subtask
from lakestate.coordinator.epoch_plan import EpochPlan, SubtaskReport, decode_pre_commits
from lakestate.coordinator.epoch_planner import EpochPlanner, next_epoch
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import ConflictError, InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import FIRST_GENERATION, Generation
from lakestate.protocol.watermarks import EVENT_TIME_MAX_US, EVENT_TIME_MIN_US
from lakestate.runtime.sink_step import SinkStep, output_claim
from lakestate.runtime.steps import ChainLink
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.registry import register_file_format, registered_formats
from lakestate.sinks.output_owner import OutputClaim
from lakestate.sinks.sink import EarlierAttempts
from lakestate.spark.data_source.options import DataSourceOptions
from lakestate.spark.data_source.position import BATCHES, BatchPosition
from lakestate.storage import ObjectStore, open_store
from lakestate.tables.contract import CompactedFiles

SINK = "out"
"""The sink that all files belong to, no matter which writer began them: they are cleaned up together."""

JOBS_KEPT = 16
COMPACTION = CompactionPolicy()


@dataclass(frozen=True)
class SinkJob:
    """A query's sink: text, and classes of formats, but no connection. It is shipped with every batch."""

    options: tuple[tuple[str, str], ...] = field(repr=False)
    """They may hold credentials."""
    schema: bytes = field(repr=False)
    formats: tuple[type[FileFormat], ...] = field(default=(), compare=False)
    """File formats that users registered: the processes of Spark's tasks do not run the user's program."""

    @classmethod
    def of(cls, options: Mapping[str, str], schema: pa.Schema) -> SinkJob:
        """The sink that the options describe, for rows of a schema."""
        return cls(tuple(sorted(options.items())), schema.serialize().to_pybytes(), registered_formats())

    def open(self) -> OpenedJob:
        """Open the job. This process keeps it, with its connections, for later batches."""
        return _open_job(self)


@lru_cache(JOBS_KEPT)
def _open_job(job: SinkJob) -> OpenedJob:
    for each in job.formats:
        register_file_format(each)
    return OpenedJob(DataSourceOptions.of(dict(job.options)), pa.ipc.read_schema(pa.py_buffer(job.schema)))


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the tasks of a batch are given."""

    epoch: EpochPlan
    reached: BatchPosition | None
    """The last published batch."""
    fence: int | None = None
    """The generation that must still be the newest when the batch is committed; None if any may be."""


@dataclass(frozen=True)
class OpenedJob:
    """A job with its sink and its state."""

    options: DataSourceOptions
    schema: pa.Schema
    _owned: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """The states whose output this process has claimed."""

    @cached_property
    def backend(self) -> ParquetBackend:
        """The state of the job."""
        return ParquetBackend(self.options.state, cache_dir=self.options.cache_dir)

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self.options.job_id

    @property
    def state(self) -> str:
        """The URL of the state, for error messages."""
        return f"{self.options.state.url}/{self.job_id}"

    def check(self) -> None:
        """Refuse rows that the sink cannot write."""
        self.options.sink.check(self.schema, self.options.event_time)

    def newest(self) -> Manifest | None:
        """The newest published epoch."""
        return self.backend.newest_checkpoint(self.job_id)

    def plan_digest(self, batch_id: int) -> str | None:
        """A digest of what Spark planned for a batch, from its offset log; None if that cannot be read."""
        try:
            planned = None if self._spark_logs is None else self._spark_logs.get(f"offsets/{batch_id}").data
        except (NotFoundError, InvalidInputError):
            return None
        return None if planned is None else blake2b(planned, digest_size=8).hexdigest()

    @cached_property
    def _spark_logs(self) -> ObjectStore | None:
        checkpoint = self.options.checkpoint
        return None if checkpoint is None else open_store(checkpoint)

    def plan_batch(self) -> BatchPlan:
        """Plan the epoch after the newest. Usually only the driver that publishes it claims the job.

        The first epoch is an exception: the names of its files contain the identity of the state, which
        the first claim creates. There is no earlier epoch whose driver this claim could disturb. For
        files in a local directory see `_plan_local_batch`.
        """
        parent = self.newest()
        state_id = self._fence().state_id if parent is None else parent.state_id
        self.claim_output(state_id, OutputClaim.OWN)
        if self.options.sink.is_local:
            return self._plan_local_batch(parent)
        if parent is None:
            return self._plan(None, FIRST_GENERATION, state_id)
        return self._plan(parent, parent.generation, parent.state_id)

    def claim_output(self, state_id: str, claim: OutputClaim) -> None:
        """Own the output, or refuse. Each process does so once: Spark says when a query starts to none."""
        if state_id not in self._owned:
            output_claim({SINK: self.options.sink}, self.backend, self.job_id, claim)(state_id)
            self._owned.add(state_id)

    def _plan_local_batch(self, parent: Manifest | None) -> BatchPlan:
        """Plan an epoch whose tasks write files that bear the generation of the fence.

        If tasks of this epoch have left files already, their driver has failed. After another claim it
        cannot commit them, because the fence has moved since it planned the batch. So they can go.
        """
        fence = self._fence()
        newest = None if parent is None else parent.epoch
        if self.options.sink.has_failed_attempts(self.job_id, SINK, fence.state_id, newest):
            fence = claim_generation(self._objects, self.backend.ambient)
            parent = self.newest()
            self.options.sink.clear_earlier_attempts(self._earlier_attempts(parent, fence))
        plan = self._plan(parent, fence.generation, fence.state_id)
        return replace(plan, fence=int(fence.generation))

    def _plan(self, parent: Manifest | None, generation: Generation, state_id: str) -> BatchPlan:
        plan = self._planner.plan(parent, generation, self.backend.ambient.now_ms(), state_id=state_id)
        if parent is None:
            return BatchPlan(plan, None)
        plan = replace(plan, parent=drop_idle_writers(parent))
        return BatchPlan(plan.for_subtasks(), BatchPosition.from_manifest(parent))

    def _fence(self) -> GenerationRecord:
        """The newest claim, or the first one."""
        fence = self._objects.read_fence()
        return claim_generation(self._objects, self.backend.ambient) if fence is None else fence.record

    def _earlier_attempts(self, newest: Manifest | None, fence: GenerationRecord) -> EarlierAttempts:
        following = next_epoch(newest)
        return EarlierAttempts(
            job_id=self.job_id,
            sink_id=SINK,
            state_id=fence.state_id,
            generation=fence.generation,
            newest=[] if newest is None else pre_commit_parts(newest),
            pending=lambda: [
                part
                for manifest in self._objects.read_manifests(following)
                for part in pre_commit_parts(manifest)
            ],
        )

    def require_fence(self, planned: int | None) -> None:
        """Refuse to commit a batch that was planned before somebody else claimed the job."""
        fence = None if planned is None else self._objects.read_fence()
        if fence is not None and fence.record.generation != planned:
            raise claimed_since_error(self.state, int(fence.record.generation), planned)

    @property
    def _objects(self) -> JobObjects:
        return self.backend.objects(self.job_id)

    @property
    def timed_sources(self) -> tuple[str, ...]:
        """The sources with event time."""
        return () if self.options.event_time is None else (BATCHES,)

    @property
    def _planner(self) -> EpochPlanner:
        return EpochPlanner(self.job_id, self.options.retention, self.timed_sources)

    def run_writer(self, name: str, plan: EpochPlan, batches: Iterable[pa.RecordBatch]) -> SubtaskReport:
        """Write rows to the files of one writer, and checkpoint them."""
        step = SinkStep(name, self.options.sink, self.schema, self.options.event_time, SINK)
        stage = StagePlan(name, 1, (ChainLink(step),))
        merges = {name: {0: tuple(self._merges(name, plan))}}
        subtask = SubtaskRun(stage, 0, replace(plan, merges=merges), self.backend)
        for _ in subtask.run(("", batch) for batch in batches):
            raise AssertionError("a sink yields no rows")
        return subtask.report

    def _merges(self, name: str, plan: EpochPlan) -> list[CompactedFiles]:
        """Merge the writer's state where it is worth it.

        There is no driver between batches that could do it beside the stream, so the task does it,
        for the epoch that swaps the merge in.
        """
        parent = plan.parent
        entry = None if parent is None else parent.operator(name)
        if parent is None or entry is None or entry.subtasks[0].summary.file_count < COMPACTION.files_min:
            return []
        metadata = self.backend.objects(self.job_id).read_subtasks(entry.subtasks)[0]
        return compact_subtask(self.backend, parent, metadata, plan.generation, COMPACTION)


def writer_name(partition: int) -> str:
    """The name of the writer of a partition number.

    >>> writer_name(7)
    'writer-00007'
    """
    return f"writer-{partition:05d}"


def drop_idle_writers(manifest: Manifest) -> Manifest:
    """The epoch without the writers that have no open file: their state is not needed again."""
    live = writers_with_open_files(manifest)
    return replace(
        manifest, operators=tuple(entry for entry in manifest.operators if entry.operator_id in live)
    )


def pre_commit_parts(manifest: Manifest) -> list[bytes]:
    """What all writers of an epoch finished and left open, each as it encoded it."""
    where = f"manifest of epoch {manifest.epoch}"
    return [part for sink in manifest.sinks for part in decode_pre_commits(sink.data, where)]


def claimed_since_error(state: str, found: int, planned: int | None) -> ConflictError:
    """The error for a batch whose files may be gone: its driver was taken for dead."""
    return ConflictError(
        "another driver has claimed the job since this batch was planned",
        object_name=state,
        found=f"generation {found}",
        expected=f"generation {planned}",
        action="let only one query write with this state; restart it to write the batch again",
    )


def writers_with_open_files(manifest: Manifest) -> frozenset[str]:
    """The names of the writers that have open files."""
    return frozenset(
        sink.sink_id
        for sink in manifest.sinks
        for part in decode_pre_commits(sink.data, f"manifest of epoch {manifest.epoch}")
        if PreCommit.decode(part).open
    )


class LatestTime:
    """The latest event time of the rows that pass through, without times that cannot be real."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self.latest_us: int | None = None

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows through and note their latest time."""
        for batch in batches:
            if self._column is not None:
                self._observe(batch.column(self._column))
            yield batch

    def _observe(self, times: pa.Array) -> None:
        times_us = times.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        is_plausible = pc.and_(
            pc.greater_equal(times_us, EVENT_TIME_MIN_US), pc.less_equal(times_us, EVENT_TIME_MAX_US)
        )
        latest = pc.max(times_us.filter(is_plausible)).as_py()
        if latest is not None:
            self.latest_us = latest if self.latest_us is None else max(self.latest_us, latest)
