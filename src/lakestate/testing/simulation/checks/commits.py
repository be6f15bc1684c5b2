"""`CommitChecks`: what `on_commit` is called with, when, and by whom.

What is expected is read from the metadata that the subtasks wrote, and not from the manifest, so that
commit data that is lost on the way to the manifest shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakestate.coordinator.commit import OperatorCommit
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import CommitPart, Manifest
from lakestate.protocol.values import Epoch
from lakestate.testing.simulation.cluster.process import Process
from lakestate.testing.simulation.promises import Promise

if TYPE_CHECKING:
    from lakestate.testing.simulation.cluster.world import World


class CommitChecks:
    """The observer of all calls of `on_commit`."""

    def __init__(self, world: World, objects: JobObjects) -> None:
        self._world = world
        self._objects = objects
        self._expected: dict[Epoch, OperatorCommit] = {}
        """The published epochs with commit data, also those that retention has collected since."""
        self._rows: dict[Epoch, tuple[int, int, int | None]] = {}
        """The rows of each epoch, and the watermark of the one before it."""
        self._newest: Manifest | None = None
        self._done: set[Epoch] = set()
        self._marked: set[Epoch] = set()
        self._marked_at_claim: dict[int, frozenset[Epoch]] = {}

    def on_publish(self, manifest: Manifest) -> None:
        """An epoch is published: all earlier ones must be committed by now."""
        if self.open_epochs:
            waiting = ", ".join(map(str, self.open_epochs))
            self._world.fail(
                Promise.COMMITS_IN_ORDER, f"epoch {manifest.epoch} is published before {waiting} is committed"
            )
        before, self._newest = self._newest, manifest
        parts = self._parts(manifest)
        if parts:
            self._rows[manifest.epoch] = (
                0 if before is None else int(before.sources[0].offsets),
                int(manifest.sources[0].offsets),
                None if before is None else before.watermark_us,
            )
            self._expected[manifest.epoch] = OperatorCommit(
                manifest.job_id,
                manifest.state_id,
                self._world.job.operator_id,
                manifest.epoch,
                manifest.generation,
                parts,
            )

    def on_claim(self, generation: int) -> None:
        """A driver has claimed the job: it can know what is marked as committed."""
        self._marked_at_claim[generation] = frozenset(self._marked)

    def on_call(self, process: Process, commit: OperatorCommit) -> None:
        """A call of `on_commit` is about to reach the target."""
        expected = self._expected.get(commit.epoch)
        if expected is None:
            self._world.fail(Promise.COMMIT_AFTER_PUBLISHING, f"on_commit of epoch {commit.epoch}")
        if commit != expected:
            self._world.fail(Promise.COMMIT_EXACT, f"{commit} instead of {expected}")
        first, stop, watermark_us = self._rows[commit.epoch]
        rows = self._world.job.rows
        wrong = self._world.job.check_commit(commit, rows[:first], rows[first:stop], watermark_us)
        if wrong:
            self._world.fail(Promise.HOOKS_SEE_STATE, f"epoch {commit.epoch}: {wrong}")
        if commit.epoch in self._marked_at_claim.get(process.generation, ()):
            found = f"on_commit of epoch {commit.epoch} by {process.name}, which started after its marker"
            self._world.fail(Promise.COMMIT_NOT_REPEATED, found)

    def on_return(self, epoch: Epoch) -> None:
        """A call has changed the target."""
        self._done.add(epoch)
        self._world.counts["own commits"] += 1

    def on_marker(self, epoch: Epoch) -> None:
        """The marker of an epoch is written."""
        if epoch in self.open_epochs:
            self._world.fail(Promise.MARKED_IS_COMMITTED, f"epoch {epoch}")
        self._marked.add(epoch)

    @property
    def open_epochs(self) -> list[Epoch]:
        """The published epochs whose commit data has not reached the target."""
        return sorted(self._expected.keys() - self._done)

    def _parts(self, manifest: Manifest) -> tuple[CommitPart, ...]:
        entry = manifest.operator(self._world.job.operator_id)
        subtasks = () if entry is None else entry.subtasks
        return tuple(
            CommitPart(subtask.subtask_index, table.table, table.commit_data)
            for subtask in self._objects.read_subtasks(subtasks)
            for table in sorted(subtask.tables, key=lambda table: table.table)
            if table.commit_data is not None
        )
