"""What a `TableManager` needs from whoever keeps checkpoints, and what keeps checkpoints for it."""

from __future__ import annotations

from typing import Protocol

from lakestate.ambient import Ambient
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest, SubtaskMetadata
from lakestate.protocol.values import Epoch, ObjectRef
from lakestate.storage.cache.run_cache import RunCache


class BackingStore(Protocol):
    """Where the state of jobs is kept. `lakestate.ParquetBackend` is the one that exists."""

    @property
    def ambient(self) -> Ambient:
        """Time and unique names."""
        ...

    @property
    def cache(self) -> RunCache | None:
        """This host's run cache, or None to keep runs in memory."""
        ...

    def objects(self, job_id: str) -> JobObjects:
        """Verified access to the objects of a job."""
        ...

    def load_checkpoint_metadata(self, job_id: str, epoch: Epoch) -> Manifest:
        """The manifest of a published epoch."""
        ...

    def write_operator_checkpoint_metadata(self, metadata: SubtaskMetadata) -> ObjectRef:
        """Store what a subtask says about an epoch, and see that it can be read back."""
        ...
