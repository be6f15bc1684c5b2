"""A small but complete job to damage: two operators, every table type, two sinks with open files, tags.

The real driver runs it once over real stores. What it wrote is kept as a `World`, which can be put
back any number of times. The expected state and output are a function of the rows alone.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakestate as ls
from lakestate.config import StoreConfig
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult
from lakestate.coordinator.epoch_progress import EpochFinished
from lakestate.coordinator.job_driver import DriverSettings, JobDriver
from lakestate.coordinator.retention.tags import create_tag, delete_tag
from lakestate.operators.operator import Operator, state_tables
from lakestate.protocol.metadata import Manifest, SourceOffsets
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.runtime.sink_step import SinkStep, sink_clean_up, sink_committer
from lakestate.runtime.steps import ChainLink, OperatorStep
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.sinks.files.sink import FileSink
from lakestate.storage.parallel import InlineExecutor
from lakestate.storage.remote.client import RemoteClient
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.tables.manager import TableManager
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.stepping import SteppingAmbient
from lakestate.verification import VerificationReport

JOB = "job"
SOURCE = "rows"
ROWS_PER_EPOCH = 12
EPOCHS = 5
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
INPUT = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("row", pa.int64())])
OUTPUT = pa.schema([("user", pa.string()), ("n", pa.int64()), ("row", pa.int64())])
SETTINGS = DriverSettings(
    ls.RetentionPolicy(keep_epochs=2),
    ls.CompactionPolicy(files_min=3, files_max=4, size_floor_bytes=1),
)

Row = dict[str, Any]
State = dict[str, list[Row]]


class Totals(ls.Operator):
    """Counts rows by user, forgets every fourth, and tells everybody about the last row."""

    output = "user string, n bigint, row bigint"
    totals = ls.KeyedTable(key="user string", value="n bigint")
    last = ls.GlobalKeyedTable(key=str, value=int)

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        counts = dict(zip(_users(batch), self.totals.get(batch)["n"].to_pylist(), strict=True))
        out = []
        for user, row in zip(_users(batch), batch["row"].to_pylist(), strict=True):
            counts[user] = (counts[user] or 0) + 1
            out.append({"user": user, "n": counts[user], "row": row})
            self.last.insert(user, row)
            if counts[user] == 4:
                counts[user] = 0
        kept = [{"user": user, "n": n} for user, n in counts.items() if n]
        gone = [{"user": user} for user, n in counts.items() if not n]
        self.totals.put(pa.Table.from_pylist(kept, pa.schema([("user", pa.string()), ("n", pa.int64())])))
        self.totals.delete(pa.Table.from_pylist(gone, pa.schema([("user", pa.string())])))
        yield pa.RecordBatch.from_pylist(out, OUTPUT)


class Recent(ls.Operator):
    """Keeps all rows by user and time."""

    recent = ls.TimeKeyTable(key="user string", value="ts timestamp, row bigint", time="ts")

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        self.recent.insert(batch)
        return iter(())


def _users(batch: pa.RecordBatch) -> list[str]:
    users: list[str] = batch["user"].to_pylist()
    return users


def input_rows(first: int, stop: int) -> list[Row]:
    """Rows of the source, by number."""
    return [
        {
            "user": f"user-{number * 7 % 5}",
            "ts": NOON + dt.timedelta(seconds=number),
            "row": number,
        }
        for number in range(first, stop)
    ]


def expected_state(upto: int) -> State:
    """What the tables hold after so many rows."""
    counts: dict[str, int] = {}
    rows = input_rows(0, upto)
    for row in rows:
        counts[row["user"]] = (counts.get(row["user"], 0) + 1) % 4
    return {
        "totals": comparable({"user": user, "n": n} for user, n in counts.items() if n),
        "last": comparable({"key": row["user"], "value": row["row"]} for row in _last_by_user(rows)),
        "recent": comparable({name: row[name] for name in ("user", "ts", "row")} for row in rows),
    }


def expected_output(upto: int) -> dict[str, list[Row]]:
    """What readers of the sinks see after so many rows, once all is committed."""
    counts: dict[str, int] = {}
    found = []
    for row in input_rows(0, upto):
        counts[row["user"]] = counts.get(row["user"], 0) % 4 + 1
        found.append({"user": row["user"], "n": counts[row["user"]], "row": row["row"]})
    return {"out": comparable(found), "local": comparable(input_rows(0, upto))}


def _last_by_user(rows: Sequence[Row]) -> list[Row]:
    return list({row["user"]: row for row in rows}.values())


def comparable(rows: Iterator[Row] | Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: sorted((name, str(value)) for name, value in row.items()))


OPERATORS: Mapping[str, type[Operator]] = {"totals": Totals, "recent": Recent}
PARALLELISM = {"totals": 2, "out": 2, "recent": 1, "local": 1}


@dataclass(frozen=True)
class World:
    """All bytes that a job has left, and what is known of them."""

    state: Mapping[str, bytes]
    output: Mapping[str, bytes]
    """Of the sink with uploads, hidden objects included."""
    local: Mapping[str, bytes]
    """Of the sink with hidden local files."""
    upto: Mapping[Epoch, int]
    """How many rows each retained epoch has taken in."""
    history: Mapping[str, Sequence[bytes]]
    """What objects that change have held before, oldest first."""


@dataclass
class CorruptionJob:
    """The job over its stores, which hold whichever world was put back last."""

    folder: Path
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.ambient = SteppingAmbient("id")
        self.state_client = RemoteClient(StoreConfig(f"memory://{self.name}-state"))
        self.output_client = RemoteClient(StoreConfig(f"memory://{self.name}-out"))
        self.local_root = self.folder / "local"
        self.local_root.mkdir(exist_ok=True)
        self.backend = ls.ParquetBackend(f"memory://{self.name}-state", cache_bytes=0, ambient=self.ambient)

    @property
    def sinks(self) -> dict[str, FileSink]:
        settings: dict[str, Any] = {
            "roll": ls.Roll(interval=None),
            "part_bytes": 300,
            "upload_threads": 0,
            "kept_row_bytes": 0,
            "compression": "none",
        }
        return {
            "out": ls.ParquetSink(f"memory://{self.name}-out", **settings),
            "local": ls.ParquetSink(f"file://{self.local_root}", **settings),
        }

    def driver(self, backend: ls.ParquetBackend | None = None, *, commits: bool = True) -> JobDriver:
        """A driver, not started. Without `commits` it crashes before it commits anything."""
        sinks = self.sinks
        committers = {name: sink_committer(sink) if commits else _crash for name, sink in sinks.items()}
        return JobDriver(
            backend or self.backend,
            JOB,
            PARALLELISM,
            committers,
            settings=SETTINGS,
            clean_up=sink_clean_up(sinks, JOB),
            upkeep_executor=InlineExecutor(),
        )

    def run_epoch(
        self, driver: JobDriver, backend: ls.ParquetBackend | None = None, *, ending: Ending = Ending.CONTINUE
    ) -> None:
        """Run one epoch over the next rows."""
        first = 0 if driver.parent is None else int(driver.parent.sources[0].offsets)
        stop = first + ROWS_PER_EPOCH

        def run(plan: EpochPlan) -> EpochResult:
            return self._subtasks(plan, first, stop, backend or self.backend)

        outcome = driver.run_epoch(driver.next_epoch(), run, ending)
        assert isinstance(outcome, EpochFinished)

    def die_in_epoch(self, driver: JobDriver) -> None:
        """Run the subtasks of an epoch and forget about it: orphans stay behind."""
        assert driver.parent is not None
        first = int(driver.parent.sources[0].offsets)
        self._subtasks(driver.plan(), first, first + ROWS_PER_EPOCH, self.backend)

    def _subtasks(self, plan: EpochPlan, first: int, stop: int, backend: ls.ParquetBackend) -> EpochResult:
        rows = pa.Table.from_pylist(input_rows(first, stop), INPUT)
        out, local = SinkStep("out", self.sinks["out"], OUTPUT), SinkStep("local", self.sinks["local"], INPUT)
        stages = [
            StagePlan("t", 2, (ChainLink(OperatorStep("totals", Totals())), ChainLink(out, parent=0))),
            StagePlan("r", 1, (ChainLink(OperatorStep("recent", Recent())), ChainLink(local))),
        ]
        reports = []
        for stage in stages:
            owners = subtasks_of(routing_keys([rows["user"]]), stage.parallelism)
            for index in range(stage.parallelism):
                run = SubtaskRun(stage, index, plan, backend)
                mine = rows.filter(pa.array(owners == index)).combine_chunks()
                yielded = list(run.run([("", batch) for batch in mine.to_batches()]))
                assert yielded == []
                reports.append(run.report)
        return EpochResult(tuple(reports), (SourceOffsets(SOURCE, str(stop)),), rows={SOURCE: stop - first})

    def restore_state(
        self,
        epoch: Epoch,
        parallelism: int,
        operators: Sequence[str] = tuple(OPERATORS),
        backend: ls.ParquetBackend | None = None,
    ) -> State:
        """The tables of an epoch, restored by so many subtasks."""
        found: State = {}
        for operator_id in operators:
            operator = OPERATORS[operator_id]
            for index in range(parallelism):
                task = TaskInfo(JOB, operator_id, index, parallelism)
                tables = TableManager.load(task, state_tables(operator()), backend or self.backend, epoch)
                for name in operator().tables():
                    found.setdefault(name, []).extend(_rows_of(tables, name, index))
        return {name: comparable(rows) for name, rows in found.items()}

    def visible(self) -> dict[str, list[Row]]:
        """What readers of the sinks see."""
        out = [
            row
            for info in self.output_client.list("")
            if not info.path.startswith((".", "_"))
            for row in _parquet_rows(self.output_client.get(info.path).data)
        ]
        local = [
            row for file in self.local_root.glob("*.parquet") for row in _parquet_rows(file.read_bytes())
        ]
        return {"out": comparable(out), "local": comparable(local)}

    def snapshot(self, upto: Mapping[Epoch, int], history: Mapping[str, Sequence[bytes]]) -> World:
        return World(
            _contents(self.state_client),
            _contents(self.output_client),
            {str(file.relative_to(self.local_root)): file.read_bytes() for file in self._local_files()},
            upto,
            history,
        )

    def put_back(self, world: World) -> None:
        """Make the stores hold exactly this world."""
        _restore(self.state_client, world.state)
        _restore(self.output_client, world.output)
        for file in self._local_files():
            if str(file.relative_to(self.local_root)) not in world.local:
                file.unlink()
        for name, data in world.local.items():
            file = self.local_root / name
            if not file.exists() or file.read_bytes() != data:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)

    def _local_files(self) -> list[Path]:
        skipped = {"locks", "tmp"}
        files = (file for file in self.local_root.rglob("*") if file.is_file())
        return [file for file in files if file.parent.name not in skipped]


def build_job(folder: Path) -> tuple[CorruptionJob, World, World]:
    """The job, with two worlds: one with open files, one whose last commit was cut short."""
    job, upto = CorruptionJob(folder), {}
    changing: dict[str, list[bytes]] = {}
    driver = _start_driver(job)
    for number in range(1, EPOCHS + 1):
        job.run_epoch(driver)
        assert driver.parent is not None
        upto[driver.parent.epoch] = int(driver.parent.sources[0].offsets)
        _tag(job, driver.parent)
        _remember(job, changing)
        if number in (2, 3):
            job.die_in_epoch(driver)
            driver = _start_driver(job)
    running = job.snapshot(_retained(job, upto), _earlier(job, changing))
    driver = _start_driver(job, commits=False)
    try:
        job.run_epoch(driver, ending=Ending.END_OF_STREAM)
    except SimulatedCrash:
        upto[Epoch(EPOCHS + 1)] = (EPOCHS + 1) * ROWS_PER_EPOCH
    interrupted = job.snapshot(_retained(job, upto), _earlier(job, changing))
    return job, running, interrupted


def _start_driver(job: CorruptionJob, *, commits: bool = True) -> JobDriver:
    driver = job.driver(commits=commits)
    driver.start()
    return driver


def _tag(job: CorruptionJob, manifest: Manifest) -> None:
    objects = job.backend.objects(JOB)
    if manifest.epoch in (2, 4):
        create_tag(objects, f"kept-{manifest.epoch}", manifest.epoch, job.ambient)
    if manifest.epoch in (1, 4):
        delete_tag(objects, "moved")
        create_tag(objects, "moved", manifest.epoch, job.ambient)


def _remember(job: CorruptionJob, changing: dict[str, list[bytes]]) -> None:
    for path, data in _contents(job.state_client).items():
        known = changing.setdefault(path, [])
        if not known or known[-1] != data:
            known.append(data)


def _earlier(job: CorruptionJob, changing: Mapping[str, Sequence[bytes]]) -> dict[str, Sequence[bytes]]:
    now = _contents(job.state_client)
    return {path: [data for data in known if data != now.get(path)] for path, known in changing.items()}


def _retained(job: CorruptionJob, upto: Mapping[Epoch, int]) -> dict[Epoch, int]:
    report = ls.verify(job.backend, JOB)
    assert report.is_clean, str(report)
    return {epoch: upto[epoch] for epoch in report.restorable}


def _crash(*_: object) -> None:
    raise SimulatedCrash("before the commit")


def _rows_of(tables: TableManager, name: str, index: int) -> list[Row]:
    if name == "last":
        entries = tables.global_keyed(name).items()
        return [{"key": key, "value": value} for key, value in entries] if index == 0 else []
    view: Any = tables.time_key(name) if name == "recent" else tables.keyed(name)
    return [row for batch in view.scan() for row in batch.to_pylist()]


def _parquet_rows(data: bytes) -> list[Row]:
    rows: list[Row] = pq.read_table(pa.BufferReader(data)).to_pylist()
    return rows


def _contents(client: RemoteClient) -> dict[str, bytes]:
    return {info.path: client.get(info.path).data for info in client.list("")}


def _restore(client: RemoteClient, wanted: Mapping[str, bytes]) -> None:
    found = _contents(client)
    client.delete([path for path in found if path not in wanted])
    for path, data in wanted.items():
        if found.get(path) != data:
            client.put(path, data)


def report_of(job: CorruptionJob) -> VerificationReport:
    """Verify the job with its sinks."""
    return ls.verify(job.backend, JOB, sinks=job.sinks)
