"""`SinkHarness`: run a sink over rows with epochs, crashes, zombies and rescaling, without Spark.

Subtasks, checkpoints, publication and commit are those of production, over a store in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa

from lakestate.coordinator.commit import JobCommitter
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult, SubtaskReport
from lakestate.coordinator.epoch_progress import EpochFinished
from lakestate.coordinator.job_driver import DriverSettings, JobDriver
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import ConflictError, InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.observability.file_events import FileEvent
from lakestate.protocol.metadata import SinkPreCommit
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.retention import RetentionPolicy
from lakestate.row_kind import StreamKind
from lakestate.runtime.sink_step import (
    SinkStep,
    output_claim,
    sink_clean_up,
    sink_committer,
    sink_take_over,
)
from lakestate.runtime.steps import ChainLink
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.sinks.output_owner import OutputClaim
from lakestate.sinks.sink import Sink
from lakestate.storage.parallel import InlineExecutor
from lakestate.testing.faults import SimulatedCrash

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]"


class CrashPoint(Enum):
    """When a driver crashes in an epoch."""

    BEFORE_PUBLISHING = "the subtasks have finished, and nothing is published"
    BEFORE_COMMIT = "the epoch is published, and its output not committed"
    AFTER_COMMIT = "the output is committed, and the driver does not know"


class SinkHarness:
    """One sink as a whole job.

    `kind` is what the rows mean: final rows by default. An epoch takes the rows of each subtask.

    >>> import lakestate as ls
    >>> sink = ls.JsonLinesSink("memory://docs-sink-harness")
    >>> harness = SinkHarness(sink, pa.schema([("n", pa.int64())]))
    >>> harness.epoch([{"n": 1}])
    >>> harness.crash(CrashPoint.BEFORE_COMMIT, [{"n": 2}])
    >>> harness.restart()
    >>> harness.finish()
    """

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        *,
        kind: StreamKind | None = None,
        event_time: str | None = None,
        parallelism: int = 1,
        keep_epochs: int = 10,
        backend: ParquetBackend | None = None,
        job_id: str = "job",
        sink_id: str = "out",
    ) -> None:
        self.sink = sink.for_stream(kind or StreamKind(), f"sink {sink_id}")
        self.schema = schema
        self.parallelism = parallelism
        self.job_id = job_id
        self.sink_id = sink_id
        self.backend = backend or ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_bytes=0)
        self._event_time = event_time
        self._settings = DriverSettings(RetentionPolicy(keep_epochs))
        self.send_to_workers: Callable[[Sink], Sink] = lambda sink: sink
        """How a sink gets to a subtask: as it is, unless a test replaces this."""
        self._crash: CrashPoint | None = None
        self._commits: list[tuple[CommitPermit, SinkPreCommit]] = []
        self.driver = self._start()

    def epoch(self, *rows: Rows) -> None:
        """Run, publish and commit an epoch. The first rows go to the first subtask, and so on."""
        self._run(rows, Ending.CONTINUE)

    def finish(self) -> None:
        """Run an epoch without rows that finishes everything that is open."""
        self._run((), Ending.FINISH_FILES)

    def crash(self, point: CrashPoint, *rows: Rows) -> None:
        """Begin an epoch with a driver that crashes. The next call is `restart`."""
        self._crash = point
        try:
            self._run(rows, Ending.CONTINUE)
        except SimulatedCrash:
            return
        finally:
            self._crash = None
        raise InvalidInputError("the driver did not crash", expected=point.value)

    def restart(self, *, parallelism: int | None = None, claim: OutputClaim = OutputClaim.OWN) -> None:
        """Start another driver. It finishes an interrupted commit. The one before is fenced."""
        self.parallelism = parallelism or self.parallelism
        self.driver = self._start(claim)

    def commit_again(self, number: int = 0) -> None:
        """Let a zombie commit an epoch that was committed before: the first by default, or the nth."""
        permit, pre_commit = self._commits[number]
        sink_committer(self.sink).commit(self.objects, permit, pre_commit)

    @property
    def objects(self) -> JobObjects:
        """The objects of the job."""
        return self.backend.objects(self.job_id)

    def _start(self, claim: OutputClaim = OutputClaim.OWN) -> JobDriver:
        sinks = {self.sink_id: self.sink}
        self.sink.check(self.schema, self._event_time)
        driver = JobDriver(
            self.backend,
            self.job_id,
            {self.sink_id: self.parallelism},
            {self.sink_id: JobCommitter(self._commit)},
            settings=self._settings,
            clean_up=sink_clean_up(sinks, self.job_id),
            claim_output=output_claim(sinks, self.backend, self.job_id, claim),
            take_over=sink_take_over(sinks),
            upkeep_executor=InlineExecutor(),
        )
        driver.start()
        return driver

    def _commit(
        self, job: JobObjects, permit: CommitPermit, pre_commit: SinkPreCommit
    ) -> Sequence[FileEvent] | None:
        if self._crash is CrashPoint.BEFORE_COMMIT:
            raise SimulatedCrash(self._crash.value)
        events = sink_committer(self.sink).commit(job, permit, pre_commit)
        self._commits.append((permit, pre_commit))
        if self._crash is CrashPoint.AFTER_COMMIT:
            raise SimulatedCrash(self._crash.value)
        return events

    def _run(self, rows: Sequence[Rows], ending: Ending) -> None:
        if len(rows) > self.parallelism:
            raise InvalidInputError(
                "there are rows for more subtasks than there are",
                found=len(rows),
                expected=f"at most {self.parallelism}",
            )
        parts = [self._table(part) for part in rows]
        parts += [self.schema.empty_table()] * (self.parallelism - len(rows))
        outcome = self.driver.run_epoch(self.driver.next_epoch(), self._attempts(parts), ending)
        if not isinstance(outcome, EpochFinished):
            raise ConflictError("another driver published the epoch", action="call restart first")

    def _attempts(self, parts: Sequence[pa.Table]) -> Callable[[EpochPlan], EpochResult]:
        def run(plan: EpochPlan) -> EpochResult:
            reports = tuple(self._attempt(plan, index, part) for index, part in enumerate(parts))
            if self._crash is CrashPoint.BEFORE_PUBLISHING:
                raise SimulatedCrash(self._crash.value)
            return EpochResult(reports)

        return run

    def _attempt(self, plan: EpochPlan, index: int, rows: pa.Table) -> SubtaskReport:
        step = SinkStep(self.sink_id, self.send_to_workers(self.sink), self.schema, self._event_time)
        stage = StagePlan("sink", self.parallelism, (ChainLink(step),))
        run = SubtaskRun(stage, index, plan.for_subtasks(), self.backend)
        for _ in run.run([("", batch) for batch in rows.to_batches() if batch.num_rows]):
            raise AssertionError("a sink yields no rows")
        # As it travels from a task to the driver.
        return SubtaskReport.decode(run.report.encode())

    def _table(self, rows: Rows) -> pa.Table:
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if isinstance(rows, pa.Table):
            return rows
        return pa.Table.from_pylist([dict(row) for row in rows], schema=self.schema)
