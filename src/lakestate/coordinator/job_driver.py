"""`JobDriver`: the epoch protocol on the driver, from claim to commit, without an engine.

The engine (Spark, the operator harness or the simulator) runs the subtasks of an epoch and returns what
they reported. Everything that makes an epoch exactly-once is decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import assert_never

from lakestate.coordinator.claim import check_fence
from lakestate.coordinator.commit import Committers, commit_epoch
from lakestate.coordinator.compact import local_compactor
from lakestate.coordinator.complete_epoch import operator_entries, pre_commits_of
from lakestate.coordinator.engine.logs import read_logs, store_logs
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult
from lakestate.coordinator.epoch_planner import EpochPlanner, next_epoch, time_watched
from lakestate.coordinator.epoch_progress import (
    AlreadyPublished,
    EpochFinished,
    EpochOutcome,
    StartAgain,
    StopWatch,
    stored_parts,
    summarise_epoch,
)
from lakestate.coordinator.job_clock import CLOCK_TOLERANCE_MS, JobClock
from lakestate.coordinator.newest_metadata import NewestMetadata
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.publish import publish_epoch, require_published
from lakestate.coordinator.recover import recover_job, refuse_finished, refuse_to_mute
from lakestate.coordinator.upkeep import CleanUp, Compactor, Exporter, TakeOver, Upkeep
from lakestate.errors import (
    ConflictError,
    CorruptionError,
    InvalidInputError,
    LakestateError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.observability.file_events import FileEvent, TellFileEvents, log_file_events
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import CompletionStatus, Manifest, NamedBytes, OperatorEntry
from lakestate.protocol.paths import EPOCH_RECORDS
from lakestate.protocol.publication import Collected, CommitPermit, Fenced, Published, Superseded
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch
from lakestate.protocol.watermarks import Watched

RUNS_MAX = 3
"""An epoch whose attempts keep being superseded is abandoned after this many runs."""

RunSubtasks = Callable[[EpochPlan], EpochResult]

_log = logging.getLogger("lakestate.epochs")


class SupersededAttemptError(ConflictError):
    """The engine ran a completed attempt again, so the epoch would mix two attempts."""


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """How a job is run, as opposed to what it computes."""

    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    compaction: CompactionPolicy | None = field(default_factory=CompactionPolicy)
    """None turns compaction off."""
    clock_tolerance_ms: int | None = CLOCK_TOLERANCE_MS
    """How far the time of the job may be ahead of the driver's clock; None if nothing depends on it."""


class JobDriver:
    """Runs the epochs of one job.

    `steps` gives the parallelism of every operator and sink: each of their subtasks must report
    exactly once in every epoch. `committers` are those of the sinks, and of the operators that have
    `on_commit`, by id. `timed_sources` are the sources with event time: the watermark is the least of
    theirs, without those that are idle, after `idle_after_us`. `claim_output` is called with the identity of
    the state once the job is claimed, and refuses an output of another job. `tell_files` is called with what
    happened to output files once their epoch is published, and again when they are committed. Nothing is
    committed if `muted`.
    """

    def __init__(
        self,
        backend: ParquetBackend,
        job_id: str,
        steps: Mapping[str, int],
        committers: Committers,
        *,
        timed_sources: Collection[str] = (),
        idle_after_us: Mapping[str, int] | None = None,
        settings: DriverSettings | None = None,
        compactor: Compactor | None = None,
        clean_up: CleanUp = lambda manifest: None,
        claim_output: Callable[[str], None] = lambda state_id: None,
        take_over: TakeOver = lambda found: None,
        tell_files: TellFileEvents = lambda events: None,
        exporter: Exporter | None = None,
        upkeep_executor: Executor | None = None,
        muted: bool = False,
    ) -> None:
        self._backend = backend
        self._newest = NewestMetadata(backend.objects(job_id))
        self._job = self._newest.job
        self._ambient = backend.ambient
        self._clock = JobClock(backend.ambient, (settings or DriverSettings()).clock_tolerance_ms)
        self._resets_clock = False
        self._steps = dict(steps)
        self._committers = committers
        self._settings = settings or DriverSettings()
        self.planner = EpochPlanner(
            job_id, self._settings.retention, tuple(timed_sources), idle_after_us or {}
        )
        self._started_us = self.now_ms() * 1000
        self._compactor = compactor or local_compactor(backend, self._settings.compaction)
        self._clean_up, self._exporter = clean_up, exporter
        self._claim_output, self._take_over = claim_output, take_over
        self._tell_listeners = tell_files
        self._told: list[FileEvent] = []
        """What was told of the files of this epoch."""
        self._upkeep_executor, self._is_muted = upkeep_executor, muted
        self._claim: GenerationRecord | None = None
        self._is_reopened = False
        self._upkeep: Upkeep | None = None
        self.parent: Manifest | None = None
        """The newest published epoch, which the next one restores from."""
        self.parent_parts_ms: dict[str, float] = {}
        """Where the time of the newest epoch went, if this driver ran it and it was measured."""

    @property
    def job_id(self) -> str:
        """The job."""
        return self._job.job_id

    @property
    def claim(self) -> GenerationRecord:
        """The claim of this driver."""
        if self._claim is None:
            raise InvalidInputError("the driver has not been started", action="call start() first")
        return self._claim

    def start(self, *, reopen: bool = False, reset_clock: bool = False) -> Manifest | None:
        """Claim the job, find its newest epoch, and finish an interrupted commit.

        A job whose stream has ended is refused, once its commit is complete, unless it is reopened. With
        `reset_clock`, the next epoch has the time of this clock, even if that of the job is ahead.
        """
        self._is_reopened = reopen
        self._resets_clock = reset_clock
        self._claim = self._backend.claim(self._job.job_id)
        # Before an interrupted commit is finished: nothing may be written to an output that is not ours.
        self._claim_output(self._claim.state_id)
        self._upkeep = Upkeep(
            self._job,
            self._claim,
            self._ambient,
            retention=self._settings.retention,
            compaction=self._settings.compaction,
            compactor=self._compactor,
            clean_up=self._clean_up,
            exporter=self._exporter,
            executor=self._upkeep_executor,
        )
        parent = self._recover()
        refuse_to_mute(parent, self._job, is_muted=self._is_muted)
        if not reopen:
            refuse_finished(parent)
        self._upkeep.take_over(self._take_over, parent)
        return parent

    def stop(self) -> None:
        """Wait for work beside the stream. The claim stays until another driver takes over."""
        if self._upkeep is not None:
            self._upkeep.stop()

    def check_claim(self) -> None:
        """Raise FencedError if another driver has claimed the job."""
        check_fence(self._job, self.claim)

    def refresh(self) -> Manifest | None:
        """Find the newest epoch again: a driver that we have fenced may have published one meanwhile.

        Raises FencedError if another driver has claimed the job.
        """
        self.check_claim()
        return self._recover()

    def read_engine_files(self) -> tuple[NamedBytes, ...]:
        """The files with which the engine continues after the newest epoch, grown ones included."""
        newest = self.parent
        return () if newest is None else (*newest.engine_files, *read_logs(self._job, newest))

    def now_ms(self) -> int:
        """The time of this driver's clock."""
        return self._ambient.now_ms()

    def next_epoch(self) -> Epoch:
        """The epoch after the newest."""
        return next_epoch(self.parent)

    def watched(self, silent_us: int | None = None) -> Watched:
        """The time in which this driver would have seen rows of sources that have none."""
        return time_watched(self.parent, self._started_us, silent_us)

    def plan(self, ending: Ending = Ending.CONTINUE, silent_us: int | None = None) -> EpochPlan:
        """What the subtasks of the next epoch are given."""
        time_of_epoch = self._clock.epoch_time(self.parent, reset=self._resets_clock)
        return self.planner.plan(
            self.parent,
            self.claim.generation,
            time_of_epoch.now_ms,
            expired_at_us=time_of_epoch.expired_at_us,
            state_id=self.claim.state_id,
            merges=None if self._upkeep is None else self._upkeep.merges(),
            stored=self._newest.ship(self.parent, self._steps),
            ending=ending,
            watched=self.watched(silent_us),
        )

    def run_epoch(
        self, epoch: Epoch, run: RunSubtasks, ending: Ending = Ending.CONTINUE, silent_us: int | None = None
    ) -> EpochOutcome:
        """Run, publish and commit one epoch, or return why that is not needed.

        `silent_us` is for an epoch without rows: the processing time until which no source had any.
        Raises FencedError if another driver has claimed the job. If a subtask fails, or anything else
        before the epoch record is created, nothing is published. After OutcomeUnknownError the record
        may exist; after an error of a committer, such as an operator's `on_commit`, it does: the epoch is
        published, and the next driver that starts completes its commit. Do not continue with this driver;
        start another.
        """
        if self.parent is not None and epoch <= self.parent.epoch:
            return AlreadyPublished()
        if epoch != self.next_epoch():
            raise InvalidInputError(
                "the engine skipped an epoch", found=f"epoch {epoch}", expected=f"epoch {self.next_epoch()}"
            )
        if not self._is_reopened:
            refuse_finished(self.parent)
        clock = StopWatch()
        plan = self.plan(ending, silent_us)
        self._newest.check_merges(plan.merges)
        result, entries = self._run_unless_fenced(plan, run)
        clock.lap("run")
        manifest = self._manifest(plan, result, entries)
        permit = self._publish(manifest)
        clock.lap("publish")
        if permit is None:
            return StartAgain(self._recover_published())
        return self._finish(plan, manifest, permit, result, clock)

    def _finish(
        self, plan: EpochPlan, manifest: Manifest, permit: CommitPermit, result: EpochResult, clock: StopWatch
    ) -> EpochFinished:
        self._resets_clock = False
        self._tell_files(result.file_events)
        self._commit(permit, manifest)
        clock.lap("commit")
        self._newest.learn(manifest, result.checkpoints)
        self.parent = manifest
        assert self._upkeep is not None
        references = self._newest.references(permit.record, manifest)
        self._upkeep.after_epoch(manifest, plan.merges, references)
        failures = self._upkeep.take_failures()
        told, self._told = self._told, []
        progress = summarise_epoch(manifest, result, clock.laps(), self._ambient.now_ms(), failures, told)
        self.parent_parts_ms = dict(progress.parts_ms)
        _log.info("%s", progress)
        return EpochFinished(progress)

    def _run_unless_fenced(
        self, plan: EpochPlan, run: RunSubtasks
    ) -> tuple[EpochResult, tuple[OperatorEntry, ...]]:
        try:
            return self._run_complete(plan, run)
        except StorageUnavailableError:
            raise
        except LakestateError:
            # If a fenced driver's subtasks find an object missing, its successor has collected or
            # committed it: the error to raise is that there is a successor, not that a file is gone.
            with suppress(StorageUnavailableError):
                check_fence(self._job, self.claim)
            raise

    def _run_complete(
        self, plan: EpochPlan, run: RunSubtasks
    ) -> tuple[EpochResult, tuple[OperatorEntry, ...]]:
        """Run until every subtask finished exactly once and no attempt was superseded."""
        for left in reversed(range(RUNS_MAX)):
            try:
                result = run(plan)
                return result, self._require_complete(plan.epoch, result)
            except SupersededAttemptError as mixed:
                if not left:
                    raise
                _log.warning("epoch %s is discarded and run again: %s", plan.epoch, mixed)
        raise AssertionError("not reached")

    def _require_complete(self, epoch: Epoch, result: EpochResult) -> tuple[OperatorEntry, ...]:
        try:
            entries = operator_entries(epoch, result.checkpoints)
        except InvalidInputError as cause:
            raise SupersededAttemptError(cause.summary, found=cause.found, expected=cause.expected) from cause
        found = {entry.operator_id: entry.parallelism for entry in entries}
        if found != self._steps:
            raise SupersededAttemptError(
                f"epoch {epoch} is not complete",
                found=f"subtasks of {found}",
                expected=f"subtasks of {self._steps}",
            )
        return entries

    def _manifest(self, plan: EpochPlan, result: EpochResult, entries: tuple[OperatorEntry, ...]) -> Manifest:
        return Manifest(
            job_id=self._job.job_id,
            epoch=plan.epoch,
            generation=self.claim.generation,
            parent=None if self.parent is None else self.parent.epoch,
            started_ms=plan.processing_time_us // 1000,
            finished_ms=max(plan.processing_time_us // 1000, self._clock.now_ms()),
            min_epoch=plan.min_epoch,
            watermark_us=plan.watermark_us,
            status=CompletionStatus.FINAL if plan.times.is_last else CompletionStatus.COMPLETE,
            operators=entries,
            sources=result.sources,
            sinks=pre_commits_of(plan.epoch, result.checkpoints, self._committers),
            engine_files=result.engine_files,
            engine_logs=store_logs(self._job, plan.epoch, result.engine_logs, self._ambient),
            state_id=self.claim.state_id,
            went_back=None if self.parent is None else self.parent.went_back,
            forked_from=None if self.parent is None else self.parent.forked_as(is_muted=self._is_muted),
            parent_parts=stored_parts(self.parent_parts_ms),
        )

    def _publish(self, manifest: Manifest) -> CommitPermit | None:
        """The permit to commit, or None if another manifest was published for this epoch."""
        try:
            outcome = publish_epoch(self._job, self.claim, manifest, self._ambient)
        except OutcomeUnknownError as unknown:
            # Look before acting: the record may exist, and may be ours.
            try:
                found = recover_job(self._job, self.claim)
            except StorageUnavailableError as cause:
                raise unknown from cause
            if found is None or found.record.epoch < manifest.epoch:
                raise
            return found.permit if found.manifest == manifest else None
        match outcome:
            case Published(permit):
                return permit
            case Superseded():
                return None
            case Fenced() | Collected():
                return require_published(outcome, self._job, manifest.epoch)
            case _:
                assert_never(outcome)

    def _commit(self, permit: CommitPermit, manifest: Manifest) -> None:
        commit_epoch(self._job, self.claim, permit, manifest, self._committers, self._tell_files)

    def _tell_files(self, events: Sequence[FileEvent]) -> None:
        log_file_events(events)
        self._told.extend(events)
        self._tell_listeners(events)

    def _recover(self) -> Manifest | None:
        found = recover_job(self._job, self.claim)
        if found is not None and found.permit is not None:
            self._commit(found.permit, found.manifest)
        self.parent = None if found is None else found.manifest
        return self.parent

    def _recover_published(self) -> Manifest:
        manifest = self._recover()
        if manifest is None:
            raise CorruptionError(
                "the record of an epoch that another driver published is gone",
                object_name=self._job.url_of(EPOCH_RECORDS),
                action="restore the job's objects, then start a driver again",
            )
        return manifest
