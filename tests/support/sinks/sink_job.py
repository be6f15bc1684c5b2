"""A job of one sink without an engine: epochs, attempts, crashes and zombies, driven by a test.

State tables are dictionaries here; what is real is everything that a sink does with its store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lakestate.errors import LakestateError
from lakestate.protocol.publication import CommitPermit, replay_permit
from lakestate.protocol.records import EpochRecord
from lakestate.protocol.values import Epoch, Generation, ObjectRef, TaskInfo
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.sink import EarlierAttempts, SinkContext, SinkWriter
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.tables.manager import TableManager
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.stepping import SteppingAmbient

JOB = "job"
SINK = "out"
SCHEMA = pa.schema([("row", pa.int64()), ("country", pa.string()), ("text", pa.string())])
ATTEMPTS_MAX = 6

State = dict[tuple[str, int], bytes]
Rows = Callable[[int, int], pa.RecordBatch]


def permit_for(epoch: int) -> CommitPermit:
    """The permit to commit an epoch of the job, as if it had been published."""
    manifest = ObjectRef(f"manifests/{epoch}", 1, 0)
    return replay_permit(EpochRecord(JOB, Epoch(epoch), Generation(1), manifest, published_at_ms=0))


class DictView:
    """A keyed view of (file, piece) → content."""

    def __init__(self, state: State) -> None:
        self.state = dict(state)

    def scan(self) -> Iterator[pa.RecordBatch]:
        if self.state:
            files, pieces = zip(*self.state, strict=True)
            contents = pa.array(list(self.state.values()), pa.binary())
            yield pa.record_batch({"file": list(files), "piece": list(pieces), "content": contents})

    def put(self, rows: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            self.state[row["file"], row["piece"]] = row["content"]

    def delete(self, keys: pa.RecordBatch) -> None:
        for row in keys.to_pylist():
            self.state.pop((row["file"], row["piece"]), None)

    def set_commit_data(self, data: bytes) -> None:
        self.commit_data = data

    commit_data: bytes | None = None


@dataclass
class DictTables:
    """The tables of one subtask in one epoch."""

    view: DictView

    def keyed(self, name: str) -> DictView:
        return self.view

    def global_keyed(self, name: str) -> DictView:
        return self.view


@dataclass(frozen=True)
class Published:
    """What the manifest of an epoch holds."""

    epoch: int = 0
    state: State = field(default_factory=dict)
    pre_commits: tuple[bytes, ...] = ()


@dataclass
class Attempt:
    """One subtask at work in one epoch."""

    writer: SinkWriter
    view: DictView
    batch: pa.RecordBatch

    def finish(self, *, finish_files: bool = False) -> DictView:
        """Write the rows of the epoch, and end it."""
        if len(self.batch):
            self.writer.write(self.batch)
        self.writer.finish(finish_files=finish_files)
        return self.view


@dataclass
class SinkJob:
    """Runs epochs. `open_sink` is called for every process: attempts, drivers and their successors."""

    open_sink: Callable[[], FileSink]
    rows: Rows
    parallelism: int = 2
    watermark_us: int | None = None
    event_time: str | None = None
    schema: pa.Schema = SCHEMA
    published: Published = field(default_factory=Published)
    ambient: SteppingAmbient = field(default_factory=lambda: SteppingAmbient("id"))
    failures: int = 0
    state_id: str = ""
    generation: int = 1
    restarts: bool = False
    """Whether a failure ends the driver too, so that another one starts."""
    pending: list[bytes] = field(default_factory=list)
    """Pre-commits of manifests of the next epoch that drivers wrote before they were fenced."""

    def attempt(self, subtask: int, epoch: int | None = None) -> Attempt:
        """Begin: restore."""
        epoch = self.published.epoch + 1 if epoch is None else epoch
        task = TaskInfo(
            JOB, SINK, subtask, self.parallelism, Generation(self.generation), state_id=self.state_id
        )
        view = DictView(self._owned(subtask))
        context = SinkContext(
            task=task,
            epoch=Epoch(epoch),
            tables=cast(TableManager, DictTables(view)),
            ambient=self.ambient,
            watermark_us=self.watermark_us,
            schema=self.schema,
            event_time=self.event_time,
        )
        return Attempt(self.open_sink().writer(context), view, self.rows(epoch, subtask))

    def restart(self) -> None:
        """A new driver: it claims the job, and clears what others left."""
        self.generation += 1
        earlier = EarlierAttempts(
            JOB,
            SINK,
            self.state_id,
            Generation(self.generation),
            newest=self.published.pre_commits,
            pending=lambda: self.pending,
        )
        self.open_sink().clear_earlier_attempts(earlier)

    def run_epoch(self, *, finish_files: bool = False) -> None:
        """One epoch, however often it has to be tried."""
        views = self._tried(lambda: self._run_subtasks(finish_files))
        self.publish(views)
        self._tried(self.commit)
        self._tried(self.clean_up)

    def run_to(self, last: int, *, finish_files: bool = True) -> None:
        while self.published.epoch < last:
            self.run_epoch(finish_files=finish_files and self.published.epoch == last - 1)

    def publish(self, views: Iterable[DictView]) -> None:
        views = list(views)
        state = {key: content for view in views for key, content in view.state.items()}
        assert len(state) == sum(len(view.state) for view in views), "a file has one owner"
        data = tuple(view.commit_data for view in views if view.commit_data is not None)
        self.published = Published(self.published.epoch + 1, state, data)

    def commit(self) -> None:
        published = self.published
        self.open_sink().committer().commit(permit_for(published.epoch), published.pre_commits)

    def clean_up(self) -> None:
        published = self.published
        self.open_sink().committer().clean_up(JOB, Epoch(published.epoch), published.pre_commits)

    def _run_subtasks(self, finish_files: bool) -> list[DictView]:
        return [
            self.attempt(subtask).finish(finish_files=finish_files) for subtask in range(self.parallelism)
        ]

    def _tried(self, act: Callable[[], Any]) -> Any:
        is_lost = False
        for _ in range(ATTEMPTS_MAX):
            try:
                if is_lost:
                    self.restart()
                    is_lost = False
                return act()
            except (SimulatedCrash, LakestateError):
                self.failures += 1
                is_lost = self.restarts
        raise AssertionError("it fails again and again")

    def _owned(self, subtask: int) -> State:
        files = sorted({file for file, _ in self.published.state})
        if not files:
            return {}
        owners = dict(zip(files, subtasks_of(routing_keys([pa.array(files)]), self.parallelism), strict=True))
        return {key: value for key, value in self.published.state.items() if owners[key[0]] == subtask}


def numbered_rows(count: int, seed: int = 5) -> Rows:
    """Rows numbered over the whole job; their text does not compress."""

    def rows(epoch: int, subtask: int) -> pa.RecordBatch:
        first = (epoch * 100 + subtask) * count
        random = np.random.default_rng([seed, epoch, subtask])
        numbers = np.arange(first, first + count)
        return pa.record_batch(
            {
                "row": numbers,
                "country": pa.array(np.array(["DE", "FR"])[numbers % 2]),
                "text": pa.array(random.integers(0, 1 << 62, count)).cast(pa.string()),
            },
            schema=SCHEMA,
        )

    return rows


def expected_rows(rows: Rows, epochs: int, parallelism: int) -> list[int]:
    """The numbers of all rows of a job, sorted."""
    return sorted(
        number
        for epoch in range(1, epochs + 1)
        for subtask in range(parallelism)
        for number in rows(epoch, subtask)["row"].to_pylist()
    )
