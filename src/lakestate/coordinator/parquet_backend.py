"""`ParquetBackend`: checkpoints as Parquet and Protobuf in an object store, for one or many jobs.

It is what subtasks write through and what a driver without Spark publishes, compacts and cleans up
with. Decisions are `protocol`'s, workflows are this package's; here they get a store and a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from lakestate.ambient import Ambient, SystemAmbient
from lakestate.codec import encode_subtask
from lakestate.config import StoreConfig, size_bytes
from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.compact import CompactedOperator, compact_operator
from lakestate.coordinator.known_references import KnownReferences
from lakestate.coordinator.publish import publish_epoch, require_published
from lakestate.coordinator.recover import open_epoch
from lakestate.coordinator.retain import retain_from
from lakestate.coordinator.tags import create_tag, delete_tag
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import Manifest, OperatorEntry, SubtaskMetadata
from lakestate.protocol.paths import FENCE
from lakestate.protocol.records import EpochRecord, GenerationRecord, TagRecord
from lakestate.protocol.retention import RetentionPlan, RetentionRefused
from lakestate.protocol.values import Epoch, ObjectRef
from lakestate.storage import open_store
from lakestate.storage.cache.run_cache import RunCache
from lakestate.storage.local.private_folder import private_temporary_folder
from lakestate.storage.store import ObjectStore
from lakestate.tables.contract import Table
from lakestate.tables.manager import SubtaskCheckpoint

CACHE_BYTES_DEFAULT = "10GB"


class ParquetBackend:
    """Durable state below a checkpoint URL. Picklable: executors build their own.

    `cache_dir` is this host's run cache; without it a folder of this user in the system's
    temporary directory is used, shared by all processes of the user on the host.
    """

    def __init__(
        self,
        checkpoint: str | StoreConfig,
        *,
        options: Mapping[str, str] | None = None,
        cache_dir: str | Path | None = None,
        cache_bytes: int | str = CACHE_BYTES_DEFAULT,
        ambient: Ambient | None = None,
    ) -> None:
        self._config = (
            checkpoint if isinstance(checkpoint, StoreConfig) else StoreConfig(checkpoint, options or {})
        )
        self._cache_dir = Path(cache_dir) if cache_dir else None
        self._cache_bytes = size_bytes(cache_bytes)
        self._ambient = ambient
        self._claims: dict[str, GenerationRecord] = {}
        self._published: dict[str, Epoch] = {}
        self._references: dict[str, KnownReferences] = {}

    def __reduce__(self) -> tuple[object, ...]:
        # A claim stays behind: it belongs to the driver that made it.
        rebuilt = (self._config, self._cache_dir, self._cache_bytes, self._ambient)
        return (_rebuild, rebuilt)

    def __repr__(self) -> str:
        return f"ParquetBackend({self._config.url!r})"

    @cached_property
    def ambient(self) -> Ambient:
        """Time and unique names."""
        return self._ambient or SystemAmbient()

    @cached_property
    def cache(self) -> RunCache:
        """This host's run cache."""
        # Not where the backend was made: an executor's temporary directory is not the driver's.
        folder = self._cache_dir or private_temporary_folder("lakestate-cache")
        return RunCache(folder, self._cache_bytes)

    def objects(self, job_id: str) -> JobObjects:
        """Verified access to the objects of a job."""
        return JobObjects(self._store, job_id)

    def claim(self, job_id: str) -> GenerationRecord:
        """Take over a job: every other driver of it is fenced from here on.

        >>> ParquetBackend("memory://claims").claim("totals").generation
        Generation(1)
        """
        self._claims[job_id] = claim_generation(self.objects(job_id), self.ambient)
        # What was known of the job is from before: others may have had it since.
        self._published.pop(job_id, None)
        self._references.pop(job_id, None)
        return self._claims[job_id]

    def write_operator_checkpoint_metadata(self, metadata: SubtaskMetadata) -> ObjectRef:
        """Store what a subtask says about an epoch, and read it back."""
        objects = self.objects(metadata.job_id)
        ref = objects.create_new(
            lambda attempt: objects.paths.subtask_metadata(
                metadata.epoch, metadata.operator_id, metadata.subtask_index, attempt
            ),
            encode_subtask(metadata),
            metadata.attempt,
        )
        objects.read_verified(ref)
        return ref

    def load_operator_metadata(
        self, job_id: str, epoch: Epoch | int, operator_id: str
    ) -> dict[int, SubtaskMetadata]:
        """What all subtasks of an operator said in a published epoch, by subtask index."""
        manifest = self.load_checkpoint_metadata(job_id, epoch)
        entry = manifest.operator(operator_id)
        if entry is None:
            raise NotFoundError(
                f"epoch {epoch} of job {job_id} has no such operator",
                object_name=operator_id,
                found=", ".join(known.operator_id for known in manifest.operators) or "no operator",
            )
        stored = self.objects(job_id).read_subtasks(entry.subtasks)
        return {metadata.subtask_index: metadata for metadata in stored}

    def write_checkpoint_metadata(
        self,
        job_id: str,
        epoch: Epoch | int,
        checkpoints: Sequence[SubtaskCheckpoint],
        *,
        min_epoch: Epoch | int | None = None,
        watermark_us: int | None = None,
    ) -> EpochRecord:
        """Publish an epoch from what all of its subtasks reported.

        Raises FencedError if another driver has the job, ConflictError if the epoch exists.
        """
        epoch, objects = Epoch(epoch), self.objects(job_id)
        claim = self._claims.get(job_id) or self.claim(job_id)
        now_ms = self.ambient.now_ms()
        manifest = Manifest(
            job_id=job_id,
            epoch=epoch,
            generation=claim.generation,
            parent=self._parent(objects, epoch),
            started_ms=now_ms,
            finished_ms=now_ms,
            min_epoch=Epoch(min_epoch or 1),
            watermark_us=watermark_us,
            operators=operator_entries(epoch, checkpoints),
        )
        outcome = publish_epoch(objects, claim, manifest, self.ambient)
        record = require_published(outcome, objects, epoch).record
        self._published[job_id] = epoch
        return record

    def _parent(self, objects: JobObjects, epoch: Epoch) -> Epoch | None:
        """The epoch before; only whoever did not publish it has to look for it among all of them."""
        published = self._published.get(objects.job_id)
        if published is not None and published.next() == epoch:
            return published
        return max((known for known in objects.list_epochs() if known < epoch), default=None)

    def newest_checkpoint(self, job_id: str) -> Manifest | None:
        """The manifest of the newest published epoch; None if there is none."""
        objects = self.objects(job_id)
        epochs = objects.list_epochs()
        while epochs:
            try:
                return open_epoch(objects, epochs[-1])[1]
            except NotFoundError:
                # Retention may have passed it since it was listed; then there is a newer one.
                newest, epochs = epochs[-1], objects.list_epochs()
                if epochs and epochs[-1] == newest:
                    raise
        return None

    def load_checkpoint_metadata(self, job_id: str, epoch: Epoch | int | None = None) -> Manifest:
        """The manifest of a published epoch; the newest if none is named."""
        objects = self.objects(job_id)
        if epoch is not None:
            return open_epoch(objects, Epoch(epoch))[1]
        newest = self.newest_checkpoint(job_id)
        if newest is None:
            raise NotFoundError("the job has no published epoch", object_name=objects.url_of("epochs/"))
        return newest

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
        disturbed. Merged files belong to the epoch after the merged one: if nobody has swapped them
        in when retention passes it, they are deleted.
        """
        manifest = self.load_checkpoint_metadata(job_id, epoch)
        claim = self._claims.get(job_id)
        return compact_operator(self, manifest, operator_id, claim, policy or CompactionPolicy(), tables)

    def cleanup_checkpoint(self, job_id: str, min_epoch: Epoch | int) -> RetentionPlan | RetentionRefused:
        """Delete what no epoch from `min_epoch` on and no tagged epoch needs.

        Only whoever has the job may delete: it was claimed, or an epoch of it published, by this
        backend. Raises FencedError if another driver has it now. Until this backend has published an
        epoch, data files that no epoch refers to stay: a driver that is not aware of our claim yet may
        be about to publish one that does. Do not call it between `apply_compacted` and publication.
        """
        claim = self._claims.get(job_id)
        if claim is None:
            raise InvalidInputError(
                f"job {job_id} is not claimed: only whoever has a job may clean it up",
                object_name=self.objects(job_id).url_of(FENCE),
                action="if no driver runs the job, call claim(job_id) first: it fences a driver that does",
            )
        known = self._references.setdefault(job_id, KnownReferences())
        return retain_from(
            self.objects(job_id),
            claim,
            Epoch(min_epoch),
            self.ambient,
            known,
            spares_merges=job_id not in self._published,
        )

    def create_tag(self, job_id: str, name: str, epoch: Epoch | int | None = None) -> TagRecord:
        """Keep an epoch from retention under a name; the newest if none is given.

        Doing it again is fine: the tag that is there is the answer. Raises ConflictError if the name
        is another epoch's, NotFoundError if the epoch is not there any more.
        """
        objects = self.objects(job_id)
        if epoch is not None:
            return create_tag(objects, name, Epoch(epoch), self.ambient)
        while True:
            newest = self.load_checkpoint_metadata(job_id).epoch
            try:
                return create_tag(objects, name, newest, self.ambient)
            except NotFoundError:
                if self.load_checkpoint_metadata(job_id).epoch == newest:
                    raise

    def delete_tag(self, job_id: str, name: str) -> None:
        """Let go of a tag; its epoch goes with the next retention. Deleting it twice is fine."""
        delete_tag(self.objects(job_id), name)

    def tags(self, job_id: str) -> tuple[TagRecord, ...]:
        """All tags of a job."""
        return self.objects(job_id).read_tags()

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._config)


def operator_entries(epoch: Epoch, checkpoints: Sequence[SubtaskCheckpoint]) -> tuple[OperatorEntry, ...]:
    """The operators of a manifest, if each of their subtasks reported exactly once."""
    operators: dict[str, list[SubtaskCheckpoint]] = {}
    for checkpoint in checkpoints:
        operators.setdefault(checkpoint.operator_id, []).append(checkpoint)
    return tuple(_operator_entry(epoch, name, parts) for name, parts in sorted(operators.items()))


def _operator_entry(epoch: Epoch, operator_id: str, parts: Sequence[SubtaskCheckpoint]) -> OperatorEntry:
    parallelism = parts[0].parallelism
    indices = sorted(part.entry.subtask_index for part in parts)
    if (
        indices != list(range(parallelism))
        or {part.parallelism for part in parts} != {parallelism}
        or {part.epoch for part in parts} != {epoch}
    ):
        raise InvalidInputError(
            f"epoch {epoch} is not complete for operator {operator_id}",
            found=f"subtasks {indices} of epochs {sorted({part.epoch for part in parts})}",
            expected=f"each of the {parallelism} subtasks once, of epoch {epoch}",
            action="run the epoch again from the last published one",
        )
    watermarks = [part.watermark_us for part in parts if part.watermark_us is not None]
    return OperatorEntry(
        operator_id=operator_id,
        parallelism=parallelism,
        subtasks=tuple(part.entry for part in sorted(parts, key=lambda part: part.entry.subtask_index)),
        watermark_us=min(watermarks) if len(watermarks) == len(parts) else None,
    )


def _rebuild(
    config: StoreConfig, cache_dir: Path | None, cache_bytes: int, ambient: Ambient | None
) -> ParquetBackend:
    return ParquetBackend(config, cache_dir=cache_dir, cache_bytes=cache_bytes, ambient=ambient)
