"""A job of nothing but a sink, on the path of production, that remembers what is told of its files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from tests.support.clocks import StandingClock

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult, SubtaskReport
from lakestate.coordinator.epoch_progress import EpochFinished
from lakestate.coordinator.job_driver import JobDriver
from lakestate.observability.file_events import FileEvent
from lakestate.observability.progress import EpochProgress
from lakestate.runtime.sink_step import SinkStep, sink_committer
from lakestate.runtime.steps import ChainLink
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.sinks.sink import Sink
from lakestate.storage.parallel import InlineExecutor

SCHEMA = pa.schema([("n", pa.int64()), ("country", pa.string())])
JOB, SINK = "shop", "out"


def rows_of(*countries: str) -> pa.RecordBatch:
    """One row for each country."""
    return pa.record_batch({"n": range(len(countries)), "country": list(countries)}, schema=SCHEMA)


class EventJob:
    """Runs epochs of one sink. `told` is what listeners would get, driver after driver."""

    def __init__(self, sink: Sink, parallelism: int = 1, schema: pa.Schema = SCHEMA) -> None:
        self.sink = sink
        self.parallelism = parallelism
        self.schema = schema
        self.clock = StandingClock(1_000)
        self.backend = ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", ambient=self.clock)
        self.told: list[FileEvent] = []
        self.driver = self.start()

    def start(self, commit: Callable[..., Any] | None = None) -> JobDriver:
        """Start another driver, whose committer may be replaced by one that fails."""
        self.driver = JobDriver(
            self.backend,
            JOB,
            {SINK: self.parallelism},
            {SINK: commit or sink_committer(self.sink)},
            upkeep_executor=InlineExecutor(),
            tell_files=self.told.extend,
        )
        self.driver.start()
        return self.driver

    def attempt(self, plan: EpochPlan, index: int, batches: Sequence[pa.RecordBatch]) -> SubtaskReport:
        """Run one subtask, and return its report as it travels."""
        step = SinkStep(SINK, self.sink, self.schema)
        run = SubtaskRun(StagePlan("s", self.parallelism, (ChainLink(step),)), index, plan, self.backend)
        assert list(run.run(("", batch) for batch in batches)) == []
        return SubtaskReport.decode(run.report.encode())

    def epoch(self, *batches: pa.RecordBatch, **settings: Any) -> EpochProgress:
        """Run one epoch: the first batch goes to the first subtask, and so on."""

        def run(plan: EpochPlan) -> EpochResult:
            given = [batches[index : index + 1] for index in range(self.parallelism)]
            return EpochResult(tuple(self.attempt(plan, index, rows) for index, rows in enumerate(given)))

        outcome = self.driver.run_epoch(self.driver.next_epoch(), run, **settings)
        assert isinstance(outcome, EpochFinished)
        return outcome.progress

    def stop(self) -> EpochProgress:
        """Run a last epoch, which finishes all files."""
        return self.epoch(ending=Ending.FINISH_FILES)

    def wait(self, minutes: int) -> None:
        """Let time pass."""
        self.clock._now_ms += minutes * 60_000

    def take_told(self) -> list[FileEvent]:
        """What was told since the last call."""
        told = list(self.told)
        self.told.clear()
        return told
