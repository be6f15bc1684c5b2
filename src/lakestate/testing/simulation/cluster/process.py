"""A process of the simulated cluster, with a name, a host, a clock and store clients. It can crash."""

from __future__ import annotations

import builtins
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import OutcomeUnknownError, StorageUnavailableError
from lakestate.storage.cache.run_cache import RunCache
from lakestate.storage.multipart.part_objects import PartObjectUploads
from lakestate.storage.object_path import RESERVED
from lakestate.storage.store import Data, MultipartUploads, ObjectInfo, ObjectStore, StoredObject
from lakestate.testing.faults import FaultyStore, Operation, SimulatedCrash
from lakestate.testing.simulation.faults import CallId, FaultKind
from lakestate.testing.simulation.stores.objects import SimulatedObjects
from lakestate.testing.simulation.stores.store import SimulatedStore

if TYPE_CHECKING:
    from lakestate.testing.simulation.cluster.world import World

Answer = TypeVar("Answer")
HOUR_MS = 3_600_000
LATE_MS = (200, 5_000, 10 * 60_000)
SHUTDOWN_MS = 20 * HOUR_MS
_HIDDEN = "_reserved"
_UNCONDITIONAL = frozenset((Operation.PUT, Operation.DELETE, Operation.UPLOAD_PART, Operation.UPLOAD_ABORT))


class Process:
    """One process. A crash ends each of its threads at the thread's next store call."""

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.crashed = False
        self.generation = 0
        """The generation of a driver once it has claimed the job; 0 for other processes."""
        self._ids = count(1)
        self._calls = count(1)
        self._skew_ms = zlib.crc32(host.encode()) % (2 * HOUR_MS) - HOUR_MS if world.scenario.is_skewed else 0
        world.processes.append(self)

    def now_ms(self) -> int:
        """The simulated time, as the clock of this host shows it."""
        return self.world.scheduler.now_ms + self._skew_ms

    def new_id(self) -> str:
        """A unique name."""
        return f"{self.name}-{next(self._ids)}"

    def client(self, store: SimulatedStore) -> ObjectStore:
        """A store as this process reaches it."""
        return ProcessStore(self, store)

    def direct_client(self, store: SimulatedStore) -> ObjectStore:
        """A store without faults, in which no time passes."""
        return DirectStore(self, store)

    def crash(self, moment: str) -> SimulatedCrash:
        """Crash the process. Returns the exception to raise."""
        self.crashed = True
        self.world.crashes += 1
        self.world.note(f"{self.name} crashes {moment}", is_turning_point=True)
        return SimulatedCrash(moment)

    def call(
        self, store: SimulatedStore, operation: Operation, path: str, act: Callable[[], Answer]
    ) -> Answer:
        """Do one store call, with the fault that the plan has for it."""
        world = self.world
        world.scheduler.pause()
        self._check_alive()
        fault = world.faults.fault_at(CallId(self.name, next(self._calls)), operation)
        world.note_call(self, operation, path, fault)
        if fault is FaultKind.STALL or fault is FaultKind.NAP:
            world.scheduler.sleep(HOUR_MS if fault is FaultKind.STALL else 60_000)
            self._check_alive()
        elif fault is FaultKind.EXECUTOR_LOST:
            world.lose_host(self.host)
            self._check_alive()
        elif fault is not None:
            return self._apply_fault(fault, operation, path, lambda: self._act(store, operation, act), act)
        return self._act(store, operation, act)

    def _act(self, store: SimulatedStore, operation: Operation, act: Callable[[], Answer]) -> Answer:
        self.world.acting = self
        answer = act()
        self.world.acting = None
        self.world.monitor.after_call(store, operation)
        return answer

    def _apply_fault(
        self,
        fault: FaultKind,
        operation: Operation,
        path: str,
        act: Callable[[], Answer],
        request: Callable[[], Answer],
    ) -> Answer:
        match fault:
            case FaultKind.CRASH_BEFORE:
                raise self.crash(f"before {operation.value} {path}")
            case FaultKind.CRASH_AFTER:
                act()
                raise self.crash(f"after {operation.value} {path}")
            case FaultKind.UNAVAILABLE:
                raise StorageUnavailableError("503: the store asks to slow down", object_name=path)
            case FaultKind.TWICE:
                self.world.deliver_late(self, operation, path, request)
                return act()
            case FaultKind.ANSWER_LOST:
                act()
            case FaultKind.LATE:
                self.world.deliver_late(self, operation, path, request)
        raise self._no_answer_error(operation, path)

    def _no_answer_error(
        self, operation: Operation, path: str
    ) -> StorageUnavailableError | OutcomeUnknownError:
        # A client repeats idempotent calls until it gives up; the call may or may not have taken effect.
        if operation in _UNCONDITIONAL:
            return StorageUnavailableError("the store did not answer in time", object_name=path)
        return OutcomeUnknownError("the answer was lost", object_name=path, action="look before acting")

    def _check_alive(self) -> None:
        if self.crashed:
            raise SimulatedCrash(f"{self.name} has crashed")


class DirectStore(FaultyStore):
    """A store as one process sees it, without faults."""

    def __init__(self, process: Process, inner: SimulatedStore) -> None:
        super().__init__(inner)
        self._process = process
        self._inner = inner

    @property
    def uploads(self) -> MultipartUploads:
        """Uploads of the store, or uploads that are made of ordinary objects."""
        if not self._process.world.scenario.part_objects:
            return super().uploads
        return PartObjectUploads(_PartClient(self), self._process)


class _PartClient:
    """Maps reserved keys to a folder that readers of output skip."""

    def __init__(self, store: FaultyStore) -> None:
        self._store = store

    def name(self, path: str) -> str:
        return f"{self._store.url}/{path}"

    def put(self, path: str, data: Data) -> ObjectInfo:
        return self._store.put(_hidden_path(path), data)

    def get(self, path: str) -> StoredObject:
        return self._store.get(_hidden_path(path))

    def head(self, path: str) -> ObjectInfo:
        return self._store.head(_hidden_path(path))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for info in self._store.list(_hidden_path(prefix)):
            yield replace(info, path=info.path.replace(_HIDDEN, RESERVED, 1))

    def delete(self, paths: Sequence[str]) -> None:
        self._store.delete_many(map(_hidden_path, paths))


def _hidden_path(path: str) -> str:
    return path.replace(RESERVED, _HIDDEN, 1) if path.startswith(RESERVED) else path


class ProcessStore(DirectStore):
    """A store as one process sees it: every call may fail, and listings come in pages."""

    def perform(self, operation: Operation, path: str, act: Callable[[], Answer]) -> Answer:
        """Do one call as the process makes it."""
        return self._process.call(self._inner, operation, path, act)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """A listing in pages. Each page shows the store at the time of its request."""
        size, after = self._process.world.page_size, ""
        while True:
            page = self.perform(Operation.LIST, prefix, partial(self._page, prefix, after, size))
            yield from page
            if len(page) < size:
                return
            after = page[-1].path
            self._process.world.counts["further pages"] += 1

    def _page(self, prefix: str, after: str, size: int) -> builtins.list[ObjectInfo]:
        return [self._inner.head(path) for path in self._inner.paths(prefix, after, size)]


class SimulatedBackend(ParquetBackend):
    """A backend of one process over the simulated store."""

    def __init__(self, process: Process, store: ObjectStore, cache: RunCache | None = None) -> None:
        super().__init__("memory://simulated", ambient=process)
        self.__dict__["_store"] = store
        self.__dict__["cache"] = cache

    def objects(self, job_id: str) -> SimulatedObjects:
        """Verified access to the objects of a job."""
        return SimulatedObjects(self._store, job_id)


class ActorExecutor(Executor):
    """Runs background work of a driver as an actor of its own, in the driver's process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._numbers = count(1)
        self._running: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start the work; it runs when the scheduler chooses it."""
        future: Future[Any] = Future()

        def body() -> None:
            try:
                failures = fn(*args, **kwargs)
                for error in (failure.error for failure in failures if failure.error is not None):
                    self._process.world.check_error(self._process, error, is_beside=True)
                future.set_result(failures)
            except Exception as error:  # noqa: BLE001 - judged, and handed over
                self._process.world.check_error(self._process, error, is_beside=True)
                future.set_exception(error)
            except SimulatedCrash as crash:
                future.set_exception(crash)
                raise

        self._running.append(future)
        self._process.world.scheduler.spawn(f"{self._process.name}up{next(self._numbers)}", body)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the work."""
        if wait:
            scheduler = self._process.world.scheduler
            scheduler.wait(lambda: all(future.done() for future in self._running), SHUTDOWN_MS)
