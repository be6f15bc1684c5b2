"""`ParquetBackend`: checkpoints as Parquet and Protobuf in an object store, for one or many jobs.

Subtasks read and write state through its base, `StateBackend`, which is all that travels to executors.
This class adds what a driver does to a job; `JobAdministration` does it for each job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lakestate.ambient import Ambient
from lakestate.config import StoreConfig
from lakestate.coordinator.administration import JobAdministration
from lakestate.coordinator.commit import OnCommits
from lakestate.coordinator.compact import CompactedOperator
from lakestate.job.state_backend import CACHE_BYTES_DEFAULT, StateBackend
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.records import EpochRecord, GenerationRecord, TagRecord
from lakestate.protocol.retention import RetentionPlan, RetentionRefused
from lakestate.protocol.values import Epoch
from lakestate.tables.contract import Table
from lakestate.tables.manager import SubtaskCheckpoint


class ParquetBackend(StateBackend):
    """Durable state below a checkpoint URL or a local path, and the administration of the jobs there.

    `cache_dir` is this host's run cache; without it a folder of this user in the system's
    temporary directory is used, shared by all processes of the user on the host. With
    `cache_bytes=0` there is no cache, and runs are kept in memory.

    A pickled backend arrives as a `StateBackend`: it reads and writes state, and holds no claim.
    """

    def __init__(
        self,
        checkpoint: str | Path | StoreConfig,
        *,
        options: Mapping[str, str] | None = None,
        cache_dir: str | Path | None = None,
        cache_bytes: int | str = CACHE_BYTES_DEFAULT,
        ambient: Ambient | None = None,
    ) -> None:
        super().__init__(
            checkpoint, options=options, cache_dir=cache_dir, cache_bytes=cache_bytes, ambient=ambient
        )
        self._administrations: dict[str, JobAdministration] = {}

    def claim(self, job_id: str) -> GenerationRecord:
        """Take over a job: every other driver of it is fenced from here on.

        >>> ParquetBackend("memory://claims").claim("totals").generation
        Generation(1)
        """
        return self._administration(job_id).claim()

    def write_checkpoint_metadata(
        self,
        job_id: str,
        epoch: Epoch | int,
        checkpoints: Sequence[SubtaskCheckpoint],
        *,
        min_epoch: Epoch | int | None = None,
        watermark_us: int | None = None,
        on_commit: OnCommits | None = None,
    ) -> EpochRecord:
        """Publish an epoch from what all of its subtasks reported, and commit it.

        The epoch is final if they were checkpointed with `then_stop`: the stream has ended. Its watermark
        is the least that a subtask reported. The job is claimed if this backend has not claimed it. Raises
        FencedError if another driver has the job, ConflictError if the epoch exists.

        `on_commit` has a function for each operator whose subtasks set commit data. It is called with an
        `OperatorCommit` once the epoch is published, after that of the epoch before if a crash interrupted
        it. If it raises OperatorError, the epoch is published: see `finish_commit`.
        """
        return self._administration(job_id).publish(
            Epoch(epoch), checkpoints, Epoch(min_epoch or 1), watermark_us, on_commit or {}
        )

    def finish_commit(self, job_id: str, on_commit: OnCommits) -> Epoch | None:
        """Commit the newest epoch of a job if that was interrupted, and return it; None if nothing was left.

        Call it when a program starts. The job is claimed if this backend has not claimed it. Raises
        FencedError if another driver has the job.
        """
        return self._administration(job_id).finish_commit(on_commit)

    def compact_operator(
        self,
        job_id: str,
        operator_id: str,
        epoch: Epoch | int | None = None,
        policy: CompactionPolicy | None = None,
        tables: Sequence[Table] = (),
    ) -> CompactedOperator:
        """Merge the files of an operator where it is worth it, beside the stream.

        With the declared `tables`, files of older state versions are rewritten in the new one.
        Nothing refers to the merged files yet: hand them to the subtasks of the next epoch with
        `TableManager.apply_compacted`. The job need not be claimed, and a driver that runs it is not
        disturbed. Merged files belong to the epoch after the merged one: if they are not swapped in
        when retention passes that epoch, they are deleted.
        """
        return self._administration(job_id).compact(operator_id, epoch, policy or CompactionPolicy(), tables)

    def cleanup_checkpoint(self, job_id: str, min_epoch: Epoch | int) -> RetentionPlan | RetentionRefused:
        """Delete what no epoch from `min_epoch` on and no tagged epoch needs.

        Only the backend that has claimed the job, or published an epoch of it, may delete. Raises
        FencedError if another driver has claimed it since. Until this backend has published an
        epoch, data files that no epoch refers to stay: a driver that is not aware of our claim yet may
        be about to publish one that does. Do not call it between `apply_compacted` and publication.
        """
        return self._administration(job_id).clean_up(Epoch(min_epoch))

    def create_tag(self, job_id: str, name: str, epoch: Epoch | int | None = None) -> TagRecord:
        """Keep an epoch from retention under a name; the newest if none is given.

        Creating the same tag again returns the existing one. Raises ConflictError if the name is
        another epoch's, NotFoundError if the epoch no longer exists.
        """
        return self._administration(job_id).create_tag(name, None if epoch is None else Epoch(epoch))

    def delete_tag(self, job_id: str, name: str) -> None:
        """Delete a tag; its epoch goes with the next retention. Deleting it twice is fine."""
        self._administration(job_id).delete_tag(name)

    def tags(self, job_id: str) -> tuple[TagRecord, ...]:
        """All tags of a job."""
        return self.objects(job_id).read_tags()

    def _administration(self, job_id: str) -> JobAdministration:
        if job_id not in self._administrations:
            self._administrations[job_id] = JobAdministration(self, job_id)
        return self._administrations[job_id]
