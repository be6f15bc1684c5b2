"""Stand-ins for Spark and for the driver, to test how a query follows both."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from pyspark.errors import PySparkRuntimeError

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending
from lakestate.coordinator.epoch_progress import EpochFinished, StartAgain
from lakestate.protocol.metadata import CompletionStatus, NamedBytes
from lakestate.protocol.values import Epoch

DEADLINE_S = 60
ENDS = Ending.END_OF_STREAM


class Spark:
    """Gives a query its batches, one after the other, and then waits to be stopped, or ends."""

    def __init__(self) -> None:
        self.batches = 0
        self.first_batch = 0
        self.ends = False
        self.launched: list[Launched] = []
        self.names: list[str] = []
        self.sparkSession = Session()

    @property
    def writeStream(self) -> Any:
        return self

    def foreachBatch(self, on_batch: Callable[[Any, int], None]) -> Any:
        self._on_batch = on_batch
        return self

    def queryName(self, name: str) -> Any:
        self.names.append(name)
        return self

    def option(self, *_: str) -> Any:
        return self

    def trigger(self, **_: Any) -> Any:
        return self

    def start(self) -> Launched:
        batches = self.batches if not self.launched else 0
        self.launched.append(Launched(self._on_batch, self.first_batch, batches, ends=self.ends))
        return self.launched[-1]


class Launched:
    """One query of Spark's. It ends when it is stopped or when a batch fails."""

    def __init__(self, on_batch: Callable[[Any, int], None], first: int, batches: int, *, ends: bool) -> None:
        self._batches = range(first, first + batches)
        self._ends = ends
        self._on_batch = on_batch
        self._over = threading.Event()
        self._failed = False
        self.error: Exception | None = None
        self.id, self.runId = "query", "run"
        self._jsq = SimpleNamespace(lastProgress=lambda: None)
        self.isActive, self.status = True, {"message": "Getting offsets"}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        session = Session()
        for number in self._batches:
            try:
                self._on_batch(SimpleNamespace(sparkSession=session), number)
            except RuntimeError:
                self._failed = True
                self._over.set()
                return
        if self._ends:
            self._over.set()

    def bring(self, number: int) -> None:
        """One more batch, in the calling thread."""
        self._on_batch(SimpleNamespace(sparkSession=Session()), number)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(DEADLINE_S)

    def awaitTermination(self) -> None:
        self._over.wait()
        if self.error is not None:
            raise self.error
        if self._failed:
            raise PySparkRuntimeError("FOREACH_BATCH_USER_FUNCTION_ERROR", {})

    def processAllAvailable(self) -> None:
        self._thread.join(DEADLINE_S)
        if self._failed:
            raise PySparkRuntimeError("FOREACH_BATCH_USER_FUNCTION_ERROR", {})


class Session:
    """A session whose jobs are cancelled by a test's own function."""

    def __init__(self) -> None:
        self.conf = Conf()
        self._jvm = None
        self.streams = SimpleNamespace(active=[])
        self.sparkContext = self

    def addJobTag(self, tag: str) -> None:
        self.tag = tag

    def removeJobTag(self, tag: str) -> None:
        assert tag == self.tag

    def cancelJobsWithTag(self, tag: str) -> None:
        cancelled.set()


cancelled = threading.Event()
"""Set when the jobs of a query are cancelled."""


class Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)

    def isModifiable(self, name: str) -> bool:
        return name in self


def stored(epoch: int, *files: str) -> Any:
    """The manifest of an epoch, as far as a query looks at it."""
    content = {"metadata": json.dumps({"id": str(uuid4())}).encode(), **dict.fromkeys(files, b"v1\n{}\n7")}
    return SimpleNamespace(
        job_id="job",
        epoch=Epoch(epoch),
        status=CompletionStatus.COMPLETE,
        watermark_us=None,
        started_ms=0,
        finished_ms=0,
        sinks=(),
        engine_files=[NamedBytes(name, data) for name, data in content.items()] if files else [],
    )


STORED = stored(1, "offsets/0")


class Driver:
    """Answers every epoch with the next outcome that the test has laid out.

    `parent` is what it starts from, `later` what it finds when it looks again.
    """

    def __init__(self, *outcomes: Any, parent: Any = STORED, later: Any = None) -> None:
        self.parent = parent
        self._later = later
        self.job_id = "job"
        self.is_fenced = False
        self._outcomes = list(outcomes)
        self.epochs: list[tuple[int, Ending]] = []
        self.stops = 0
        self.planner = SimpleNamespace(
            next_watermark_us=lambda newest, watched: self.next_watermark_us,
            moves_at_us=lambda newest, watched: None,
        )
        self.next_watermark_us: int | None = None
        """Due is an epoch without rows if the newest epoch has not seen it."""

    def check_claim(self) -> None:
        if self.is_fenced:
            raise ls.FencedError("another driver has taken over this job")

    def refresh(self) -> Any:
        self.parent = self._later
        return self.parent

    def read_engine_files(self) -> Any:
        return () if self.parent is None else self.parent.engine_files

    def next_epoch(self) -> Epoch:
        return Epoch(len(self.epochs) + 1)

    def watched(self, silent_us: int | None) -> Any:
        return None

    def run_epoch(self, epoch: Epoch, run: Any, ending: Ending, silent_us: int | None) -> Any:
        self.epochs.append((int(epoch), ending))
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, EpochFinished) and self.parent is not None:
            reached = {"status": _status(ending), "watermark_us": self.next_watermark_us}
            self.parent = SimpleNamespace(**vars(self.parent) | reached)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome() if callable(outcome) else outcome

    def stop(self) -> None:
        self.stops += 1

    def now_ms(self) -> int:
        return 0


def _status(ending: Ending) -> CompletionStatus:
    return CompletionStatus.FINAL if ending is ENDS else CompletionStatus.COMPLETE


DONE = EpochFinished(SimpleNamespace(epoch=1))  # type: ignore[arg-type]
AGAIN = StartAgain(SimpleNamespace())  # type: ignore[arg-type]
