"""`QueryEpochs`: the epochs of one query, each over a batch of Spark's or without rows, one at a time.

`PipelineQuery` decides when they run, and holds its lock meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING

from lakestate.coordinator.engine.batches import BatchNumbers
from lakestate.coordinator.engine.due_epochs import DueEpochs
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult
from lakestate.coordinator.epoch_progress import AlreadyPublished, EpochFinished, StartAgain
from lakestate.coordinator.job_driver import JobDriver
from lakestate.observability.listeners import Listener, tell_epoch
from lakestate.observability.progress import EpochProgress
from lakestate.observability.time_parts import TRIGGER
from lakestate.protocol.values import Epoch
from lakestate.spark.checkpoint.offsets import out_of_step_error
from lakestate.spark.execution.compile import CompiledPipeline
from lakestate.spark.execution.epoch_runner import EpochRunner, SparkBatch
from lakestate.spark.execution.work import SparkWork
from lakestate.spark.session import apply_settings, use_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECENT_EPOCHS = 100
"""As many epochs as Spark keeps by default."""


class QueryEpochs:
    """Runs epochs of one pipeline, and knows which of them a batch of Spark's query becomes."""

    def __init__(
        self,
        pipeline: CompiledPipeline,
        driver: JobDriver,
        directory: Path,
        listeners: Sequence[Listener],
        work: SparkWork,
        *,
        is_polled: bool = True,
    ) -> None:
        self._pipeline = pipeline
        self._driver = driver
        self._listeners = listeners
        self._work = work
        self._is_prepared = False
        self._prepared: SparkSession | None = None
        self._thread: int | None = None
        self.runner = EpochRunner(pipeline, directory)
        self.due = DueEpochs(
            driver, pipeline.follows, is_polled=is_polled, outputs_due_us=pipeline.outputs_due_us
        )
        self.numbers = BatchNumbers()
        self.recent: deque[EpochProgress] = deque(maxlen=RECENT_EPOCHS)
        self.running: Epoch | None = None
        self.must_start_again = False
        """Another driver has published the epoch that was to be run: begin again after it."""

    @property
    def is_own_thread(self) -> bool:
        """Whether the calling thread is the one that runs an epoch now."""
        return self._thread == get_ident()

    def begin(self) -> None:
        """Spark's query is about to be launched after the newest epoch."""
        self.numbers = BatchNumbers.after(self._driver.parent)
        self.due.forget()
        self.must_start_again = False
        self._is_prepared = False

    def run_batch(self, frame: DataFrame, batch_id: int, trigger_ms: float | None = None) -> None:
        """Run the epoch of a batch. `trigger_ms` is what the batch before it took beside its epoch."""
        if trigger_ms is not None and self._driver.parent_parts_ms:
            self._driver.parent_parts_ms[TRIGGER] = trigger_ms
        self._prepare(frame.sparkSession)
        self._run(SparkBatch(frame, batch_id), self.numbers.epoch_of(batch_id), Ending.CONTINUE)

    def run_without_batch(self, ending: Ending = Ending.CONTINUE) -> None:
        """Run the next epoch without rows."""
        session = self._pipeline.schemas.session
        # The session of a query has them already, and its own limits of Arrow batches: stages hand rows on
        # in this epoch too.
        with nullcontext() if session is self._prepared else use_settings(session):
            self._work.raise_if_cancelled()
            self._run(None, self._driver.next_epoch(), ending)

    def _run(self, batch: SparkBatch | None, epoch: Epoch, ending: Ending) -> None:
        results: list[EpochResult] = []

        def run(plan: EpochPlan) -> EpochResult:
            results.append(self.runner.run(plan, batch))
            return results[-1]

        self._thread, self.running = get_ident(), epoch
        try:
            with self._work.tag(self._pipeline.schemas.session):
                # Spark delivers rows as soon as there are any: without a batch, no source has some now.
                silent_us = self.due.silent_us() if batch is None else None
                outcome = self._driver.run_epoch(epoch, run, ending, silent_us)
            if isinstance(outcome, AlreadyPublished):
                assert batch is not None, "an epoch without a batch is the one after the newest"
                assert self._driver.parent is not None, "what is published has a manifest"
                raise out_of_step_error(self._driver.parent, batch.batch_id, self.numbers)
            if isinstance(outcome, StartAgain):
                self.must_start_again = True
            if isinstance(outcome, EpochFinished):
                if batch is None:
                    self.numbers = self.numbers.skip_epoch()
                self.due.note_epoch(results[-1].due_us if results else None)
                self.recent.append(outcome.progress)
                tell_epoch(self._listeners, outcome.progress)
        finally:
            self._thread = self.running = None

    def _prepare(self, session: SparkSession) -> None:
        """Set up the session of Spark's query, once. It is a clone: the user's session does not change."""
        if self._is_prepared:
            return
        apply_settings(session, self._pipeline.parallelism)
        self.runner.arrow_batches.begin(session)
        # Compaction and epochs without rows use this session too: Spark keeps separate Python workers
        # for other settings, and starting those takes longer than a small epoch.
        self._pipeline.schemas.session = self._prepared = session
        self._is_prepared = True
