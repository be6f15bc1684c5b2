"""Work beside the stream: clean-up, retention, compaction, exports; one at a time, not on an epoch's path.

None of them depends on another's success: a failure is reported, and the step is tried again after a
later epoch. A merge waits until an epoch that swaps it in is published. Until then nothing is collected:
merged files are named after an epoch that retention may already have passed, and nothing refers to them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from lakestate.ambient import Ambient
from lakestate.coordinator.claim import check_fence
from lakestate.coordinator.epoch_plan import Merges, SubtaskMerges
from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.coordinator.retention.retain import retain_epochs, retain_known_epochs
from lakestate.errors import FencedError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy, has_many_shared_files, plan_compaction
from lakestate.protocol.metadata import Manifest, OperatorEntry, SubtaskMetadata
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.retention import RetentionPolicy, RetentionRefused
from lakestate.protocol.values import Epoch, Generation
from lakestate.tables.stored_operator import parts_of

Compactor = Callable[[Manifest, Sequence[SubtaskMetadata], Generation], SubtaskMerges]
"""Merges files of one operator where it is worth it, and returns what each subtask swaps in.

It gets the metadata of all subtasks of the operator."""

Exporter = Callable[[Manifest, Collection[str]], None]
"""Writes copies of tables that are due, given the operators with merges swapped in since its last call."""

CleanUp = Callable[[Manifest], None]
"""Removes what failed attempts left in the sinks, once the epoch is committed."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """What a driver knows when it has claimed a job and found its newest epoch."""

    claim: GenerationRecord
    newest: Manifest | None
    pending: Callable[[], Sequence[Manifest]]
    """Reads what drivers before the claim can still publish; see `JobObjects.read_manifests`."""
    job: JobObjects


TakeOver = Callable[[Takeover], None]
"""Removes what attempts of failed drivers left in the sinks, before the first epoch."""

CLEAN_UP_EPOCHS = 100
"""Sinks are cleaned up after the first epoch, and then every this many epochs."""

RETENTION_SHARE = 4
"""Retention waits until a quarter of the epochs that are kept can go: its requests cost the same for one."""

LISTING_EPOCHS = 100
"""Retention lists every object of the job at the first epoch, and then every this many epochs.

In between it deletes what the epochs needed that go. Only a listing finds what failed attempts left."""

CLEAN_UP, RETENTION, COMPACTION, EXPORT = "clean_up", "retention", "compaction", "export"
"""The steps of upkeep, as metrics name them."""

_log = logging.getLogger("lakestate.upkeep")


@dataclass(frozen=True, slots=True)
class UpkeepFailure:
    """A step that failed. `error` is what it raised; None if retention was refused."""

    step: str
    what: str
    reason: str
    error: Exception | None = None


class Upkeep:
    """Clean-up, retention and compaction of one job, for as long as one driver runs it."""

    def __init__(
        self,
        job: JobObjects,
        claim: GenerationRecord,
        ambient: Ambient,
        *,
        retention: RetentionPolicy,
        compaction: CompactionPolicy | None,
        compactor: Compactor,
        clean_up: CleanUp,
        exporter: Exporter | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._job = job
        self._claim = claim
        self._ambient = ambient
        self._retention = retention
        self._compaction = compaction
        self._compactor = compactor
        self._clean_up = clean_up
        self._exporter = exporter
        self._compacted: set[str] = set()
        """The operators whose merges were swapped in since the last export."""
        self._cleaned_at: Epoch | None = None
        self._known_references = KnownReferences()
        self._learned: list[tuple[Epoch, frozenset[str]]] = []
        """What epochs need that were published since the last retention, which runs in another thread."""
        self._retained_at: Epoch | None = None
        self._listed_at: Epoch | None = None
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="lakestate-upkeep")
        self._running: Future[list[UpkeepFailure]] | None = None
        self._failures: Counter[str] = Counter()
        self._is_stopped = False
        self._lock = Lock()
        self._merges: Merges = {}

    def merges(self) -> Merges:
        """What the next epoch swaps in."""
        with self._lock:
            return self._merges

    def take_over(self, act: TakeOver, newest: Manifest | None) -> None:
        """The driver has started: remove what failed ones left. If that fails, the job still starts."""
        following = Epoch(1) if newest is None else newest.epoch.next()
        found = Takeover(self._claim, newest, lambda: self._job.read_manifests(following), self._job)
        failures: list[UpkeepFailure] = []
        with _isolate_failure(CLEAN_UP, "clean-up after failed starts", failures):
            act(found)
        self._report(failures)

    def after_epoch(
        self, manifest: Manifest, swapped_in: Merges, references: frozenset[str] | None = None
    ) -> None:
        """An epoch was published and committed: start what is due, unless work is still under way.

        `references` is every object that restoring the epoch needs, if the caller knows.
        """
        with self._lock:
            if references is not None:
                self._learned.append((manifest.epoch, references))
            if swapped_in and swapped_in is self._merges:
                self._compacted |= swapped_in.keys()
                self._merges = {}
            waiting = bool(self._merges)
        if waiting or self._is_busy() or self._is_stopped:
            return
        self._running = self._executor.submit(self._run, manifest)

    def take_failures(self) -> dict[str, int]:
        """How often each step has failed since the last call, as far as it is known by now."""
        self._is_busy()
        taken, self._failures = dict(self._failures), Counter()
        return taken

    def stop(self) -> None:
        """Wait for work under way, and start nothing more."""
        self._is_stopped = True
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._is_busy()

    def _is_busy(self) -> bool:
        """Whether work is under way. A failure is reported once: the stream continues without it."""
        if self._running is None:
            return False
        if not self._running.done():
            return True
        ended, self._running = self._running, None
        if not ended.cancelled():
            self._report_end(ended)
        return False

    def _report_end(self, ended: Future[list[UpkeepFailure]]) -> None:
        error = ended.exception()
        if isinstance(error, FencedError):
            self._is_stopped = True
            _log.warning("upkeep of job %s has ended: %s", self._job.job_id, error)
            return
        if error is not None:
            _log.warning("upkeep of job %s failed and will be tried again: %s", self._job.job_id, error)
            return
        self._report(ended.result())

    def _report(self, failures: Sequence[UpkeepFailure]) -> None:
        for failure in failures:
            self._failures[failure.step] += 1
            _log.warning(
                "%s of job %s failed and will be tried again: %s",
                failure.what,
                self._job.job_id,
                failure.reason,
            )

    def _run(self, manifest: Manifest) -> list[UpkeepFailure]:
        """Do all that is due. Returns what failed; only a fenced driver skips the rest."""
        failures: list[UpkeepFailure] = []
        with _isolate_failure(CLEAN_UP, "clean-up of the sinks", failures):
            self._clean_if_due(manifest)
        with _isolate_failure(RETENTION, "retention", failures):
            self._retain_if_due(manifest, failures)
        found: dict[str, SubtaskMerges] = {}
        for entry in manifest.operators:
            with _isolate_failure(COMPACTION, f"compaction of operator {entry.operator_id}", failures):
                if self._is_worth_merging(entry) and (merges := self._compact(manifest, entry)):
                    found[entry.operator_id] = merges
        with self._lock:
            self._merges = found
        # Last: retention, which waits for it, would delete what it reads.
        with _isolate_failure(EXPORT, "an export", failures):
            self._export(manifest)
        return failures

    def _export(self, manifest: Manifest) -> None:
        if self._exporter is None:
            return
        with self._lock:
            compacted, self._compacted = self._compacted, set()
        check_fence(self._job, self._claim)
        self._exporter(manifest, compacted)

    def _clean_if_due(self, manifest: Manifest) -> None:
        last = self._cleaned_at
        if last is None or manifest.epoch - last >= CLEAN_UP_EPOCHS:
            self._clean_up(manifest)
            self._cleaned_at = manifest.epoch

    def _is_retention_due(self, manifest: Manifest) -> bool:
        """Whether enough epochs can be deleted."""
        last = self._retained_at
        return last is None or manifest.epoch - last >= self._retention.keep_epochs // RETENTION_SHARE

    def _is_listing_due(self, manifest: Manifest) -> bool:
        last = self._listed_at
        return last is None or manifest.epoch - last >= LISTING_EPOCHS

    def _retain_if_due(self, manifest: Manifest, failures: list[UpkeepFailure]) -> None:
        with self._lock:
            learned, self._learned = self._learned, []
        for epoch, references in learned:
            self._known_references.learn(epoch, references)
        if not self._is_retention_due(manifest):
            return
        is_listing, listed_at = self._is_listing_due(manifest), self._listed_at
        # If it fails now, or is refused, what it would have deleted is found by the next listing.
        self._listed_at = None
        # Not past this epoch, though newer ones may exist by now: what is merged next is read from it.
        retain = retain_epochs if is_listing else retain_known_epochs
        plan = retain(
            self._job, self._claim, self._retention, self._ambient, manifest.epoch, self._known_references
        )
        self._retained_at = manifest.epoch
        if isinstance(plan, RetentionRefused):
            failures.append(UpkeepFailure(RETENTION, "retention", f"nothing is deleted: {plan}"))
        else:
            self._listed_at = manifest.epoch if is_listing else listed_at

    def _compact(self, manifest: Manifest, entry: OperatorEntry) -> SubtaskMerges:
        stored = self._job.read_subtasks(entry.subtasks)
        found = self._compactor(manifest, stored, self._claim.generation)
        return {index: merges for index, merges in found.items() if merges}

    def _is_worth_merging(self, entry: OperatorEntry) -> bool:
        """Look only at the subtask with the most files, as the others are similar, and at shared tables."""
        policy = self._compaction
        if policy is None or sum(each.summary.file_count for each in entry.subtasks) < policy.files_min:
            return False
        fullest = max(entry.subtasks, key=lambda subtask: subtask.summary.file_count)
        metadata = self._job.read_subtasks([fullest])[0]
        lasting = [table for table in metadata.tables if not table.table_type.is_of_one_epoch]
        return any(plan_compaction(table.files, policy) for table in lasting) or any(
            has_many_shared_files(self._count_files(entry, config.name), entry.parallelism, policy)
            for config in metadata.configs
            if config.table_type.is_replicated
        )

    def _count_files(self, entry: OperatorEntry, table: str) -> int:
        parts = parts_of(table, self._job.read_subtasks(entry.subtasks))
        return sum(len(part.files) for part in parts.values())


@contextmanager
def _isolate_failure(step: str, what: str, failures: list[UpkeepFailure]) -> Iterator[None]:
    """Let a step fail without the others. If it is fenced there is a successor, and all work ends."""
    try:
        yield
    except FencedError:
        raise
    except Exception as error:  # noqa: BLE001 - reported to the log, the progress and the metrics
        failures.append(UpkeepFailure(step, what, str(error) or type(error).__name__, error))
