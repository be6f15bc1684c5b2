"""The metadata of the newest epoch, which the driver keeps so that nobody reads it again.

A subtask reports the metadata object that it wrote. The driver hands it to the subtasks of the next
epoch with their plan, and takes from it what retention and compaction need. After a start it is read
once. Memory and work follow the size of one epoch's metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from lakestate.coordinator.epoch_plan import Merges
from lakestate.coordinator.retention.retain import references_of
from lakestate.errors import LakestateError
from lakestate.job.known_objects import KnownObjects
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.records import EpochRecord
from lakestate.protocol.values import FileRef
from lakestate.tables.manager import SubtaskCheckpoint, check_not_collected
from lakestate.tables.stored_operator import ShippedOperator, gone_files, ship_operator


class NewestMetadata:
    """What one driver knows of the newest epoch of its job. `job` reads through it."""

    def __init__(self, job: JobObjects) -> None:
        self._known = KnownObjects()
        self._manifest: Manifest | None = None
        self._gone: dict[str, dict[int, dict[str, tuple[FileRef, ...]]]] = {}
        """The files that the newest epoch no longer has, by operator, subtask and table."""
        self.job = replace(job, known=self._known)

    def learn(self, manifest: Manifest, checkpoints: Iterable[SubtaskCheckpoint]) -> None:
        """Hold the metadata of an epoch that was published, and nothing older."""
        self._gone = {}
        for checkpoint in checkpoints:
            if checkpoint.metadata is not None:
                self._known.add(checkpoint.entry.metadata.path, checkpoint.metadata)
                self._note_gone_files(checkpoint)
        self._manifest = manifest
        self._known.keep_only(
            {entry.metadata.path for operator in manifest.operators for entry in operator.subtasks}
        )

    def _note_gone_files(self, checkpoint: SubtaskCheckpoint) -> None:
        entry = None if self._manifest is None else self._manifest.operator(checkpoint.operator_id)
        if entry is None or entry.parallelism != checkpoint.parallelism:
            return
        index = checkpoint.entry.subtask_index
        before, now = self.job.read_subtasks([entry.subtasks[index], checkpoint.entry])
        if gone := gone_files(before, now):
            self._gone.setdefault(checkpoint.operator_id, {})[index] = gone

    def ship(self, manifest: Manifest | None, steps: Collection[str]) -> dict[str, ShippedOperator]:
        """What the subtasks of these steps are told of the epoch that they continue."""
        entries = () if manifest is None else manifest.operators
        return {
            entry.operator_id: ship_operator(entry, self.job, self._gone.get(entry.operator_id, {}))
            for entry in entries
            if entry.operator_id in steps
        }

    def references(self, record: EpochRecord, manifest: Manifest) -> frozenset[str] | None:
        """What retention must keep for the epoch; None if it has to find out, and say why it cannot."""
        try:
            return references_of(self.job, record, manifest)
        except LakestateError:
            return None

    def check_merges(self, merges: Merges) -> None:
        """Check once for all subtasks that what they swap in has not been collected."""
        by_subtask = [found for merged in merges.values() for found in merged.values()]
        files = [file for found in by_subtask for merge in found for file in merge.merged]
        if files:
            check_not_collected(files, self.job)
