"""`ls.open`: everything below a checkpoint URL, for reading. Nothing is written, claimed or cached."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from lakestate.config import StoreConfig
from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.inspection.epoch_info import find_epoch_info, open_epochs
from lakestate.inspection.job_names import list_job_names
from lakestate.inspection.job_state import JobState
from lakestate.inspection.listing import Listing
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.values import Epoch
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.store import ObjectStore


def open(url: str | Path | StoreConfig) -> Checkpoint:  # noqa: A001 - said as `ls.open`
    """The jobs below a checkpoint URL or a local path, to look inside while they run.

    >>> import lakestate as ls, pyarrow as pa
    >>> backend = ls.ParquetBackend("memory://docs-open")
    >>> totals = ls.KeyedTable("totals", key="user string", value="n bigint")
    >>> tables = ls.TableManager.load(ls.TaskInfo("shop", "count"), [totals], backend, restore_from=None)
    >>> for epoch, n in ((1, 10), (2, 20)):
    ...     tables.keyed("totals").put(pa.table({"user": ["ann"], "n": [n]}))
    ...     done = tables.checkpoint(epoch, min_epoch=1, watermark=None, then_stop=False)
    ...     record = backend.write_checkpoint_metadata("shop", epoch, [done])
    >>> checkpoint = ls.open("memory://docs-open")
    >>> checkpoint.job_names()
    ['shop']
    >>> checkpoint.job("shop").epoch(1).table("count", "totals").to_arrow().to_pylist()
    [{'user': 'ann', 'n': 10}]
    >>> checkpoint.job("shop").epoch("newest").table("count", "totals").get({"user": "ann"}).to_pylist()
    [{'user': 'ann', 'n': 20}]

    Pass a `StoreConfig` for a store that needs options. Nothing is read until something is asked for.
    """
    return Checkpoint(StateBackend(url, cache_bytes=0))


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One job: its newest epoch, and what `EpochInfo` says of that. `problem` says what cannot be read."""

    job: str
    epoch: Epoch | None = None
    status: str = "no epoch"
    committed: bool = False
    published: datetime | None = None
    watermark_us: int | None = None
    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    epochs: int = 0
    """How many epochs can be opened."""
    operators: tuple[str, ...] = ()
    problem: str | None = None


class Checkpoint:
    """The jobs below a checkpoint URL. Made by `ls.open`."""

    def __init__(self, backend: StateBackend) -> None:
        self._backend = backend

    def __repr__(self) -> str:
        return f"Checkpoint({self.url!r})"

    def _repr_html_(self) -> str:
        return self.jobs()._repr_html_()

    @property
    def url(self) -> str:
        """Where the jobs are."""
        return self._store.url

    def job_names(self) -> list[str]:
        """The names of all jobs, in order. Folders are listed, not what is in them."""
        return list_job_names(self._store)

    def jobs(self) -> Listing[JobInfo]:
        """All jobs, each with its newest epoch. A damaged one is shown with its problem."""
        return Listing(map_in_parallel(self._job_info, self.job_names()))

    def job(self, name: str) -> JobState:
        """A job by its name. Whether it exists shows when it is first read."""
        return JobState(self._backend, name)

    @cached_property
    def _store(self) -> ObjectStore:
        return self._backend.objects("any").store

    def _job_info(self, name: str) -> JobInfo:
        job = self._backend.objects(name)
        try:
            epochs, tags = open_epochs(job)
        except (CorruptionError, IncompatibleStateError) as problem:
            return JobInfo(name, status="damaged", problem=str(problem))
        newest = epochs[-1] if epochs else None
        info = None if newest is None else find_epoch_info(job, newest, tags.get(newest, ()))
        if info is None:
            return JobInfo(name)
        return JobInfo(
            name,
            info.epoch,
            info.status,
            info.committed,
            info.published,
            info.watermark_us,
            info.rows,
            info.size_bytes,
            info.files,
            len(epochs),
            info.operators,
            info.problem,
        )
