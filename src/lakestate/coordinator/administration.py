"""`JobAdministration`: what may be done to one job besides reading it, and what that needs to know.

It stays in the process that made it. A claim that reached an executor could publish, or delete, in the
name of a driver that has long been fenced.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.commit import OnCommits, OperatorCommitter, commit_epoch
from lakestate.coordinator.compact import CompactedOperator, compact_operator
from lakestate.coordinator.complete_epoch import (
    completion_status,
    manifest_watermark,
    operator_entries,
    pre_commits_of,
)
from lakestate.coordinator.publish import publish_epoch, require_published
from lakestate.coordinator.recover import recover_job
from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.coordinator.retention.needed_tags import refuse_needed_tag
from lakestate.coordinator.retention.retain import retain_from, retain_sparing_merges
from lakestate.coordinator.retention.tags import create_tag, delete_tag
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.paths import FENCE
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.records import EpochRecord, GenerationRecord, TagRecord
from lakestate.protocol.retention import RetentionPlan, RetentionRefused
from lakestate.protocol.values import Epoch
from lakestate.tables.contract import Table
from lakestate.tables.manager import SubtaskCheckpoint


class JobAdministration:
    """The claim on one job, and the workflows that need or respect it."""

    def __init__(self, backend: StateBackend, job_id: str) -> None:
        self._backend = backend
        self._job_id = job_id
        self._claim: GenerationRecord | None = None
        self._published: Epoch | None = None
        self._is_settled = False
        """True if the newest epoch is known to be committed."""
        self._references = KnownReferences()

    def claim(self) -> GenerationRecord:
        """Take over the job: every other driver of it is fenced from here on."""
        self._claim = claim_generation(self._job, self._backend.ambient)
        # What is known of the job may be outdated: other drivers may have run it since.
        self._published, self._is_settled = None, False
        self._references = KnownReferences()
        return self._claim

    def publish(
        self,
        epoch: Epoch,
        checkpoints: Sequence[SubtaskCheckpoint],
        min_epoch: Epoch,
        watermark_us: int | None,
        on_commit: OnCommits,
    ) -> EpochRecord:
        """Publish and commit an epoch from the checkpoints of its subtasks, claiming the job if need be."""
        operators = operator_entries(epoch, checkpoints)
        status = completion_status(epoch, checkpoints)
        _check_min_epoch(min_epoch, epoch)
        watermark_us = manifest_watermark(operators, watermark_us)
        pre_commits = pre_commits_of(epoch, checkpoints, on_commit)
        claim, now_ms = self._claim or self.claim(), self._backend.ambient.now_ms()
        if not self._is_settled:
            # Recovery looks at the newest epoch alone: once there is another, nobody would commit this one.
            self.finish_commit(on_commit)
        manifest = Manifest(
            job_id=self._job_id,
            epoch=epoch,
            generation=claim.generation,
            parent=self._parent(epoch),
            started_ms=now_ms,
            finished_ms=now_ms,
            min_epoch=min_epoch,
            watermark_us=watermark_us,
            status=status,
            operators=operators,
            sinks=pre_commits,
            state_id=claim.state_id,
        )
        # Before the attempt: after an unknown outcome the epoch may be published.
        self._is_settled = False
        outcome = publish_epoch(self._job, claim, manifest, self._backend.ambient)
        permit = require_published(outcome, self._job, epoch)
        self._published = epoch
        self._commit(permit, manifest, on_commit)
        return permit.record

    def finish_commit(self, on_commit: OnCommits) -> Epoch | None:
        """Commit the newest epoch if that was interrupted, and return it; None if nothing was left."""
        found = recover_job(self._job, self._claim or self.claim())
        if found is None or found.permit is None or not found.manifest.sinks:
            self._is_settled = True
            return None
        self._commit(found.permit, found.manifest, on_commit)
        return found.record.epoch

    def _commit(self, permit: CommitPermit, manifest: Manifest, on_commit: OnCommits) -> None:
        if manifest.sinks:
            assert self._claim is not None, "what is committed was claimed"
            committers = {name: OperatorCommitter(call) for name, call in on_commit.items()}
            commit_epoch(self._job, self._claim, permit, manifest, committers)
        self._is_settled = True

    def compact(
        self, operator_id: str, epoch: Epoch | int | None, policy: CompactionPolicy, tables: Sequence[Table]
    ) -> CompactedOperator:
        """Merge the files of an operator where it is worth it. Nothing refers to the result yet."""
        manifest = self._backend.load_checkpoint_metadata(self._job_id, epoch)
        generation = None if self._claim is None else self._claim.generation
        return compact_operator(self._backend, manifest, operator_id, generation, policy, tables)

    def clean_up(self, min_epoch: Epoch) -> RetentionPlan | RetentionRefused:
        """Delete what no epoch from `min_epoch` on and no tagged epoch needs. Requires a claim."""
        if self._claim is None:
            raise InvalidInputError(
                f"job {self._job_id} is not claimed: only the driver that has claimed a job may clean it up",
                object_name=self._job.url_of(FENCE),
                action="if no driver runs the job, call claim(job_id) first: it fences a driver that does",
            )
        retain = retain_sparing_merges if self._published is None else retain_from
        return retain(self._job, self._claim, min_epoch, self._backend.ambient, self._references)

    def create_tag(self, name: str, epoch: Epoch | None) -> TagRecord:
        """Keep an epoch from retention under a name; the newest if none is given."""
        if epoch is not None:
            return create_tag(self._job, name, epoch, self._backend.ambient)
        while True:
            newest = self._newest()
            try:
                return create_tag(self._job, name, newest, self._backend.ambient)
            except NotFoundError:
                # Retention may have passed it since; then there is a newer one.
                if self._newest() == newest:
                    raise

    def delete_tag(self, name: str) -> None:
        """Give up a tag, unless a fork needs it. Deleting it twice is fine."""
        refuse_needed_tag(self._job, name)
        delete_tag(self._job, name)

    @property
    def _job(self) -> JobObjects:
        return self._backend.objects(self._job_id)

    def _newest(self) -> Epoch:
        return self._backend.load_checkpoint_metadata(self._job_id).epoch

    def _parent(self, epoch: Epoch) -> Epoch | None:
        """The epoch before. A driver that published it itself need not list all of them."""
        if self._published is not None and self._published.next() == epoch:
            return self._published
        return max((known for known in self._job.list_epochs() if known < epoch), default=None)


def _check_min_epoch(min_epoch: Epoch, epoch: Epoch) -> None:
    if min_epoch > epoch:
        raise InvalidInputError(
            "min_epoch, the oldest epoch to keep, is after the epoch",
            found=f"min_epoch {min_epoch}",
            expected=f"at most epoch {epoch}",
            action="nothing was published",
        )
