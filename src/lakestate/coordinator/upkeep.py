"""Work beside the stream: compaction and retention, one at a time, never on an epoch's path.

A merge waits until an epoch that swaps it in is published. Until then nothing is collected: merged
files are named after an epoch that retention may already have passed, and nothing refers to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Lock

from lakestate.ambient import Ambient
from lakestate.coordinator.epoch_plan import Merges
from lakestate.coordinator.known_references import KnownReferences
from lakestate.coordinator.retain import retain
from lakestate.protocol.compaction import CompactionPolicy, plan_compaction
from lakestate.protocol.metadata import Manifest, OperatorEntry
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.retention import RetentionPolicy, RetentionRefused
from lakestate.protocol.values import Epoch
from lakestate.tables.job_objects import JobObjects
from lakestate.tables.lifecycle import CompactedFiles

Compactor = Callable[[Manifest, str, GenerationRecord], Mapping[int, tuple[CompactedFiles, ...]]]
"""Merges what is worth it in one operator, and says what each subtask swaps in."""

CleanUp = Callable[[Manifest], None]
"""Clears away what dead attempts left in the sinks, once the epoch is committed."""

CLEAN_UP_EPOCHS = 100
"""Sinks are cleaned up at the start, and every so many epochs."""

RETENTION_SHARE = 100
"""Retention of many epochs waits until a hundredth of them can go: it lists every object of the job."""

_log = logging.getLogger("lakestate.upkeep")


class Upkeep:
    """Retention and compaction of one job, for as long as one driver runs it."""

    def __init__(
        self,
        job: JobObjects,
        mine: GenerationRecord,
        ambient: Ambient,
        *,
        retention: RetentionPolicy,
        compaction: CompactionPolicy | None,
        compactor: Compactor,
        clean_up: CleanUp,
        executor: Executor | None = None,
    ) -> None:
        self._job = job
        self._mine = mine
        self._ambient = ambient
        self._retention = retention
        self._compaction = compaction
        self._compactor = compactor
        self._clean_up = clean_up
        self._is_clean = False
        self._known_references = KnownReferences()
        self._retained_at: Epoch | None = None
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="lakestate-upkeep")
        self._running: Future[None] | None = None
        self._is_stopped = False
        self._lock = Lock()
        self._merges: Merges = {}

    def merges(self) -> Merges:
        """What the next epoch swaps in."""
        with self._lock:
            return self._merges

    def after_epoch(self, manifest: Manifest, swapped_in: Merges) -> None:
        """An epoch was published and committed: begin what there is to do, if nothing is under way."""
        with self._lock:
            if swapped_in and swapped_in is self._merges:
                self._merges = {}
            waiting = bool(self._merges)
        if waiting or self._is_stopped or self._is_busy():
            return
        self._running = self._executor.submit(self._run, manifest)

    def stop(self) -> None:
        """Wait for what is under way, and begin nothing more."""
        self._is_stopped = True
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._is_busy()

    def _is_busy(self) -> bool:
        """Whether work is under way. What failed is told once: the stream goes on without it."""
        if self._running is None:
            return False
        if not self._running.done():
            return True
        failure = None if self._running.cancelled() else self._running.exception()
        if failure is not None:
            _log.warning("upkeep of job %s failed and will be tried again: %s", self._job.job_id, failure)
        self._running = None
        return False

    def _run(self, manifest: Manifest) -> None:
        if not self._is_clean or manifest.epoch % CLEAN_UP_EPOCHS == 0:
            self._clean_up(manifest)
            self._is_clean = True
        if self._is_retention_due(manifest):
            self._retain(manifest)
        found = {
            entry.operator_id: merges
            for entry in manifest.operators
            if self._is_worth_merging(entry) and (merges := self._merged(manifest, entry.operator_id))
        }
        with self._lock:
            self._merges = found

    def _is_retention_due(self, manifest: Manifest) -> bool:
        """Whether the epochs that can go are worth a listing of all objects of the job."""
        last = self._retained_at
        return last is None or manifest.epoch - last >= self._retention.keep_epochs // RETENTION_SHARE

    def _retain(self, manifest: Manifest) -> None:
        # Not past this epoch, though newer ones may be there by now: what is merged next is read from it.
        plan = retain(
            self._job, self._mine, self._retention, self._ambient, manifest.epoch, self._known_references
        )
        self._retained_at = manifest.epoch
        if isinstance(plan, RetentionRefused):
            _log.warning("nothing of job %s was collected: %s", self._job.job_id, plan.damages)

    def _merged(self, manifest: Manifest, operator_id: str) -> dict[int, tuple[CompactedFiles, ...]]:
        found = self._compactor(manifest, operator_id, self._mine)
        return {index: merges for index, merges in found.items() if merges}

    def _is_worth_merging(self, entry: OperatorEntry) -> bool:
        """Look at the subtask with the most files, because the others are like it."""
        policy = self._compaction
        if policy is None:
            return False
        fullest = max(entry.subtasks, key=lambda subtask: subtask.summary.file_count)
        if fullest.summary.file_count < policy.files_min:
            return False
        metadata = self._job.read_subtasks([fullest])[0]
        return any(
            plan_compaction([file.size_bytes for file in table.files], policy) for table in metadata.tables
        )
