"""One job: its epochs, and how one of them is chosen."""

from __future__ import annotations

from datetime import datetime

from lakestate.errors import CorruptionError, IncompatibleStateError, NotFoundError
from lakestate.inspection.changes.history import TableHistory
from lakestate.inspection.epoch_info import EpochInfo, list_epochs, open_epochs
from lakestate.inspection.epoch_state import EpochState
from lakestate.inspection.job_names import job_not_found
from lakestate.inspection.listing import Listing
from lakestate.inspection.profile import EpochProfile, average_profile
from lakestate.job.known_objects import KnownObjects
from lakestate.job.named_epochs import NEWEST, find_epoch, readable_tags
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch, open_newest_epoch
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.storage.parallel import map_in_parallel
from lakestate.tables.contract import Table

EpochLike = Epoch | int | str | datetime
"""A number, `"newest"`, the name of a tag, or a time: the newest epoch that was published by then."""


class JobState:
    """One job, for reading. Metadata that several epochs share is fetched once."""

    def __init__(self, backend: StateBackend, name: str) -> None:
        objects = backend.objects(name)
        self._backend = backend
        self._objects = JobObjects(objects.store, name, KnownObjects())

    def __repr__(self) -> str:
        return f"JobState({self.name!r})"

    def _repr_html_(self) -> str:
        return self.epochs()._repr_html_()

    @property
    def name(self) -> str:
        """The job's name."""
        return self._objects.job_id

    def epochs(self) -> Listing[EpochInfo]:
        """Every epoch that can be opened, oldest first. A damaged one is shown with its problem."""
        found = list_epochs(self._objects)
        if not found:
            self._require_job()
        return found

    def tags(self) -> dict[str, Epoch]:
        """The epochs that tags keep, by the name of the tag. Tags that cannot be read are left out."""
        return {tag.name: tag.epoch for tag in readable_tags(self._objects)[0]}

    def epoch(self, which: EpochLike = NEWEST) -> EpochState:
        """An epoch by its number, the name of a tag, or a time; or the newest.

        A time stands for the newest epoch that had been published by then; a `datetime` needs a time zone.
        A text is `newest`, digits, the name of a tag, or a time as ISO 8601 writes it, in UTC unless it
        says otherwise.
        """
        return EpochState(self._backend, self._objects, self._manifest(which))

    def profile(self, epochs: int = 20) -> EpochProfile:
        """Where the time of the newest epochs went: in Spark, in Lakestate, in your code. An average.

        A damaged epoch is left out.
        """
        newest = self.open_epochs()[-epochs:] if epochs > 0 else []
        return average_profile(
            manifest for manifest in map_in_parallel(self._sound_manifest, newest) if manifest is not None
        )

    def _sound_manifest(self, epoch: Epoch) -> Manifest | None:
        try:
            return open_epoch(self._objects, epoch)[1]
        except (CorruptionError, IncompatibleStateError, NotFoundError):
            return None

    def table(self, operator: str, table: str | Table) -> TableHistory:
        """A table over all epochs: what changed between two of them, and what a key had in each.

        Pass the declaration instead of the name if epochs hold rows of several state versions.
        """
        return TableHistory(self, operator, table)

    def open_epochs(self) -> list[Epoch]:
        """The numbers of all epochs that can be opened, oldest first."""
        return open_epochs(self._objects)[0]

    def _manifest(self, which: EpochLike) -> Manifest:
        try:
            if which == NEWEST:
                return self._newest()
            return open_epoch(self._objects, find_epoch(self._objects, which))[1]
        except NotFoundError as cause:
            unknown = job_not_found(self._objects)
            if unknown is None:
                raise
            raise unknown from cause

    def _newest(self) -> Manifest:
        newest = open_newest_epoch(self._objects)
        if newest is None:
            raise NotFoundError("the job has no published epoch", object_name=self._objects.url_of("epochs/"))
        return newest

    def _require_job(self) -> None:
        unknown = job_not_found(self._objects)
        if unknown is not None:
            raise unknown
