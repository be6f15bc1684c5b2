"""`World`: the stores, the scheduler, the faults and the events of one run."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakestate.coordinator.job_driver import SupersededAttemptError
from lakestate.errors import ConflictError, CorruptionError, IncompatibleStateError, LakestateError
from lakestate.protocol.values import Epoch
from lakestate.sinks.files import names
from lakestate.storage.cache.run_cache import RunCache
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.cluster.process import LATE_MS, Process
from lakestate.testing.simulation.cluster.scheduler import Scheduler
from lakestate.testing.simulation.cluster.transaction_log import TransactionLog
from lakestate.testing.simulation.faults import FaultKind, FaultPlan, Script
from lakestate.testing.simulation.ledger import DeliveryTarget
from lakestate.testing.simulation.promises import BrokenPromiseError, Promise
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.stores.store import SimulatedStore
from lakestate.testing.simulation.tables.without import NoTableChecks

if TYPE_CHECKING:
    from lakestate.testing.simulation.checks.monitor import Monitor
    from lakestate.testing.simulation.job import SimulatedJob
    from lakestate.testing.simulation.tables.checks import TableChecks
    from lakestate.testing.simulation.tables.target import SimulatedTable

STEPS_MAX = 60_000
CACHE_BYTES = 50_000_000
JOB_ID = "job"
HOSTS = ("host-a", "host-b")
SINK_IDS = ("out", "copy")
TABLE = "table"
"""The sink that writes to a table."""
DELIVERED = "delivered"
"""The sink that delivers."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One line of a trace."""

    time_ms: int
    text: str
    is_turning_point: bool
    """True for faults, crashes and the like, which explain how a history went."""

    def __str__(self) -> str:
        return f"{self.time_ms % 10**9:>9} {self.text}"


class World:
    """Everything that the actors of one run share."""

    monitor: Monitor

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        job: SimulatedJob,
        script: Script | None = None,
        *,
        traced: bool = False,
    ) -> None:
        self.seed = seed
        self.scenario = scenario
        self.job = job
        self.processes: list[Process] = []
        self.work = random_stream(seed, "work")
        self.scheduler = Scheduler(random_stream(seed, "turns"), scenario.switch_rate)
        self.faults = FaultPlan(seed, scenario.rates, script)
        self.state = SimulatedStore("state", self._now_ms)
        self.outputs = {name: SimulatedStore(name, self._now_ms) for name in SINK_IDS[: scenario.sinks]}
        self.target = SimulatedStore("target", self._now_ms)
        """Stands for the targets of `on_commit` and deliveries in calls, which fail like those of a store."""
        self.delivered = DeliveryTarget()
        self.log = TransactionLog()
        self.table: SimulatedTable | None = None
        self.table_checks: TableChecks | NoTableChecks = NoTableChecks()
        self.foreign = _foreign_path()
        """An object and an upload of another job, in every store."""
        self.foreign_uploads = {name: [self.foreign] for name in self.outputs}
        """By output: the paths of all uploads of other jobs."""
        for store in (self.state, *self.outputs.values()):
            store.put(self.foreign, b"of another job")
        for store in self.outputs.values():
            Process(self, "neighbour", "elsewhere").direct_client(store).uploads.start(self.foreign)
            if scenario.loses_part:
                store.uploads.vanishes = self._part_vanishes
        self.page_size = scenario.page_size
        self.acting: Process | None = None
        self.steps = 0
        self.crashes = 0
        self.counts: Counter[str] = Counter()
        self.violation: BrokenPromiseError | None = None
        self.newest_version = 1
        """The newest version of the state among all drivers that were started."""
        self.trace: list[TraceEvent] | None = [] if traced else None
        self._caches = Path(tempfile.mkdtemp(prefix="lakestate-simulation-")) if scenario.is_cached else None

    def close(self) -> None:
        """Remove the run caches."""
        if self._caches is not None:
            shutil.rmtree(self._caches, ignore_errors=True)

    def note(self, text: str, *, is_turning_point: bool = False) -> None:
        """Add an event to the trace, if one is kept."""
        if self.trace is not None:
            self.trace.append(TraceEvent(self.scheduler.now_ms, text, is_turning_point))

    def note_call(self, process: Process, operation: Operation, path: str, fault: FaultKind | None) -> None:
        """Count and trace a store call."""
        self.steps += 1
        if fault is not None:
            self.counts[fault.name.lower()] += 1
        if self.trace is not None:
            suffix = "" if fault is None else f"  ** {fault.value}"
            text = f"{process.name:<12} {operation.value} {path}{suffix}"
            self.note(text, is_turning_point=fault is not None)
        if self.steps > STEPS_MAX:
            self.fail(Promise.PROGRESS, f"no end after {STEPS_MAX} store calls")

    def fail(self, promise: Promise, found: object, cause: BaseException | None = None) -> None:
        """Record the first broken promise, and end the run."""
        if self.violation is None:
            self.violation = BrokenPromiseError(promise, found, cause)
            self.note(f"VIOLATION {promise.value}: {found}", is_turning_point=True)
        self.scheduler.stop()

    def check_error(
        self,
        process: Process,
        error: BaseException,
        *,
        is_zombie: bool = False,
        is_older: bool = False,
        is_beside: bool = False,
    ) -> None:
        """Check that a process may fail with this error. Errors from outside the package are always bugs.

        A stalled driver of older code that takes over from newer code must refuse its state.
        """
        self.note(f"{process.name} ends: {type(error).__name__}: {error}", is_turning_point=True)
        if not isinstance(error, LakestateError):
            self.fail(Promise.ERRORS_ARE_OURS, f"{process.name}: {type(error).__name__}: {error}", error)
        is_stuck = isinstance(error, CorruptionError | IncompatibleStateError)
        # Background work may find that another driver was faster; it is repeated.
        is_stuck |= isinstance(error, ConflictError) and not is_beside
        # A driver whose attempts are superseded again and again gives up.
        is_stuck &= not isinstance(error, SupersededAttemptError)
        is_excused = is_zombie or self.scenario.loses_part or self.monitor.is_overtaken(process)
        is_excused |= is_older and isinstance(error, IncompatibleStateError)
        if is_stuck and not is_excused:
            self.fail(Promise.DRIVER_CONTINUES, f"{process.name}: {error}", error)

    def cache_of(self, host: str) -> RunCache | None:
        """The run cache of a host."""
        return None if self._caches is None else RunCache(self._caches / host, CACHE_BYTES)

    def lose_host(self, host: str) -> None:
        """Lose a host with its processes and its cache."""
        self.note(f"{host} is lost", is_turning_point=True)
        for process in self.processes:
            if process.host == host and not process.crashed:
                process.crash(f"with {host}")
        if self._caches is not None and (self._caches / host).exists():
            shutil.rmtree(self._caches / host, ignore_errors=True)
            self.counts["caches lost"] += 1

    def deliver_late(self, process: Process, operation: Operation, path: str, act: Callable[[], Any]) -> None:
        """Deliver a request after its caller has stopped waiting for it."""

        def arrive() -> None:
            # While the caller is still checking, or long after it has ended.
            self.scheduler.sleep(1 + int(self.work.random() * self.work.choice(LATE_MS)))
            text = f"{process.name:<12} {operation.value} {path}  ** arrives late"
            self.note(text, is_turning_point=True)
            try:
                act()
            except LakestateError as refused:
                self.note(f"refused: {refused}")

        self.scheduler.spawn(f"late{self.steps}", arrive)

    def _part_vanishes(self) -> bool:
        if self.counts["parts lost"] or self.work.random() > 0.2:
            return False
        self.note("an acknowledged part is lost")
        self.counts["parts lost"] += 1
        return True

    def _now_ms(self) -> int:
        return self.scheduler.now_ms


def _foreign_path() -> str:
    """The name of a file of another job with the same id: a staging copy, say, with other checkpoints."""
    fingerprint = names.sink_fingerprint(JOB_ID, SINK_IDS[0], "other checkpoints")
    name = names.FileNaming(extension="json").name(fingerprint, Epoch(1), 0, "foreign")
    return f"neighbour/{name}"
