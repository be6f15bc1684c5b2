"""`StagedEpoch`: the staged rows of a published epoch, as a sink delivers them.

Every object is verified before a row of it is handed out. What is lost is named, and nothing is delivered
in its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from lakestate.job.objects import JobObjects
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import Epoch
from lakestate.storage.parallel import InlineExecutor, is_sequential, map_in_parallel
from lakestate.tables.staged.pre_commit import StagedObject, StagedRows
from lakestate.tables.staged.table import STAGED_ROWS, StagedTable, read_staged

Answer = TypeVar("Answer")

OBJECTS_AHEAD = 2
"""How many objects are read ahead of the one that is delivered."""
PARTS_AT_ONCE = 8
"""How many parts are delivered at the same time."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The rows of one subtask. Picklable, so that it can be delivered by another process."""

    job: JobObjects
    subtask_index: int
    objects: tuple[StagedObject, ...]

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return sum(each.row_count for each in self.objects)

    def tables(self) -> Iterator[pa.Table]:
        """The rows in the order in which the subtask wrote them, an object at a time."""
        return read_ahead([(self.job, each) for each in self.objects])


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """All rows of a sink in one published epoch. It has at least one row.

    The same epoch has the same rows whenever and by whomever it is delivered. `state_id` tells apart the
    epochs of two jobs of one name: a job whose checkpoints were deleted begins again with epoch 1.
    """

    job_id: str
    state_id: str
    sink_id: str
    epoch: Epoch
    manifest: str
    """Path and checksum of the manifest: another job's epoch of the same number has another one."""
    parts: tuple[StagedPart, ...]
    """One for each subtask with rows, in the order of subtasks."""

    @classmethod
    def of(cls, job: JobObjects, permit: CommitPermit, pre_commits: Sequence[bytes]) -> StagedEpoch | None:
        """The rows that the pre-commits of an epoch name; None if there are none."""
        found = sorted((StagedRows.decode(data) for data in pre_commits), key=lambda rows: rows.subtask_index)
        if not found:
            return None
        return cls(
            permit.job_id,
            found[0].state_id,
            found[0].sink_id,
            permit.epoch,
            f"{permit.manifest.path} xxh3 {permit.manifest.checksum:016x}",
            tuple(StagedPart(job, rows.subtask_index, rows.objects) for rows in found),
        )

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return sum(part.row_count for part in self.parts)

    def tables(self) -> Iterator[pa.Table]:
        """All rows, subtask by subtask, each in the order in which it wrote them; an object at a time."""
        return read_ahead([(part.job, each) for part in self.parts for each in part.objects])

    def deliver_parts(self, deliver: Callable[[StagedPart], Answer]) -> list[Answer]:
        """Call a function for each part, several at the same time, and return what it returns.

        This is the one place that decides where parts are delivered: in threads of the driver.
        """
        return map_in_parallel(deliver, self.parts, PARTS_AT_ONCE)


def read_ahead(objects: Sequence[tuple[JobObjects, StagedObject]]) -> Iterator[pa.Table]:
    """The rows of objects in order. The next ones are read while one is used."""
    pool: Executor = InlineExecutor() if is_sequential() else ThreadPoolExecutor(OBJECTS_AHEAD)
    # One at a time in a simulation: a read that is not needed any more must not happen.
    ahead = 0 if is_sequential() else OBJECTS_AHEAD
    waiting: deque[Future[pa.Table]] = deque()
    left = iter(objects)
    try:
        while True:
            for job, each in left:
                waiting.append(pool.submit(_read, job, each))
                if len(waiting) > ahead:
                    break
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _read(job: JobObjects, found: StagedObject) -> pa.Table:
    return read_staged(found, StagedTable(STAGED_ROWS).config, job)
