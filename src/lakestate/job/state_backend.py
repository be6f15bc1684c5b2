"""`StateBackend`: what a subtask reads and writes state through, on the driver or on an executor.

It travels: pickling it ships the store's configuration, and each process opens its own connections and
its own host's cache. It holds no claim, so it can neither publish an epoch nor delete one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from lakestate.ambient import Ambient, SystemAmbient
from lakestate.codec import encode_subtask
from lakestate.config import StoreConfig, size_bytes
from lakestate.errors import NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch, open_newest_epoch
from lakestate.protocol.metadata import Manifest, SubtaskMetadata
from lakestate.protocol.values import Epoch, ObjectRef
from lakestate.storage import open_store
from lakestate.storage.cache.run_cache import RunCache
from lakestate.storage.local.object_files import root_of
from lakestate.storage.local.private_folder import private_temporary_folder
from lakestate.storage.store import ObjectStore

CACHE_BYTES_DEFAULT = "10GB"


class StateBackend:
    """State below a checkpoint URL or a local path, for reading and for writing checkpoints. Picklable.

    `cache_dir` is this host's run cache; without it a folder of this user in the system's
    temporary directory is used, shared by all processes of the user on the host. With
    `cache_bytes=0` there is no cache, and runs are kept in memory.
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
        self._config = (
            checkpoint if isinstance(checkpoint, StoreConfig) else StoreConfig(checkpoint, options or {})
        )
        self._cache_dir = Path(cache_dir) if cache_dir else None
        self._cache_bytes = size_bytes(cache_bytes)
        self._ambient = ambient

    def __reduce__(self) -> tuple[object, ...]:
        # Of a subclass, too, only this much travels: what administers a job stays with its driver.
        return (_rebuild, (self._config, self._cache_dir, self._cache_bytes, self._ambient))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """Where the state is."""
        return self._config.url

    @cached_property
    def ambient(self) -> Ambient:
        """Time and unique names."""
        return self._ambient or SystemAmbient()

    @cached_property
    def cache(self) -> RunCache | None:
        """This host's run cache, or None to keep runs in memory."""
        if not self._cache_bytes:
            return None
        # Not where the backend was made: an executor's temporary directory is not the driver's.
        folder = self._cache_dir or private_temporary_folder("lakestate-cache")
        return RunCache(folder, self._cache_bytes)

    @property
    def location(self) -> str:
        """Where the state is, without credentials: the same for everyone who reaches the same place.

        >>> StateBackend("s3://bucket/state/").location
        's3://bucket/state'
        """
        url = self._config.url
        return root_of(url).resolve().as_uri() if url.startswith("file:") else url.rstrip("/")

    def objects(self, job_id: str) -> JobObjects:
        """Verified access to the objects of a job."""
        return JobObjects(self._store, job_id)

    def without_cache(self) -> StateBackend:
        """The same state over the same connection, without reading or filling the host's cache."""
        uncached = StateBackend(self._config, cache_bytes=0, ambient=self.ambient)
        uncached._store = self._store
        return uncached

    def newest_checkpoint(self, job_id: str) -> Manifest | None:
        """The manifest of the newest published epoch; None if there is none."""
        return open_newest_epoch(self.objects(job_id))

    def load_checkpoint_metadata(self, job_id: str, epoch: Epoch | int | None = None) -> Manifest:
        """The manifest of a published epoch; the newest if none is named."""
        objects = self.objects(job_id)
        if epoch is not None:
            return open_epoch(objects, Epoch(epoch))[1]
        newest = open_newest_epoch(objects)
        if newest is None:
            raise NotFoundError("the job has no published epoch", object_name=objects.url_of("epochs/"))
        return newest

    def load_operator_metadata(
        self, job_id: str, epoch: Epoch | int, operator_id: str
    ) -> dict[int, SubtaskMetadata]:
        """The metadata of all subtasks of an operator in a published epoch, by subtask index.

        It says what is true of that epoch, also for a subtask that changed nothing in it and stored
        no metadata of its own.
        """
        manifest = self.load_checkpoint_metadata(job_id, epoch)
        operator = manifest.require_operator(operator_id)
        stored = self.objects(job_id).read_subtasks(operator.subtasks)
        return {
            entry.subtask_index: manifest.subtask_in_this_epoch(operator, entry, metadata)
            for entry, metadata in zip(operator.subtasks, stored, strict=True)
        }

    def write_operator_checkpoint_metadata(
        self, metadata: SubtaskMetadata, encoded: bytes | None = None
    ) -> ObjectRef:
        """Store a subtask's metadata of an epoch, and read it back.

        `encoded` is the metadata as bytes, if the caller has encoded it already.
        """
        objects = self.objects(metadata.job_id)
        ref = objects.create_new(
            lambda attempt: objects.paths.subtask_metadata(
                metadata.epoch, metadata.operator_id, metadata.subtask_index, attempt
            ),
            encode_subtask(metadata) if encoded is None else encoded,
            metadata.attempt,
        )
        objects.read_verified(ref)
        return ref

    @cached_property
    def _store(self) -> ObjectStore:
        return open_store(self._config)


def _rebuild(
    config: StoreConfig, cache_dir: Path | None, cache_bytes: int, ambient: Ambient | None
) -> StateBackend:
    return StateBackend(config, cache_dir=cache_dir, cache_bytes=cache_bytes, ambient=ambient)
