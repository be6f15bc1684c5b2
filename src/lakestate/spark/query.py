"""`PipelineQuery`: a running pipeline, from the first epoch to the last.

Spark's query brings the batches; the driver makes an epoch of each. What fails is kept here as the
error it was: Spark is told only that the epoch did not finish, because it cannot carry more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event, Lock, RLock, Thread, get_ident
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from lakestate.coordinator.epoch_plan import EpochPlan, EpochResult
from lakestate.coordinator.job_driver import AlreadyPublished, EpochFinished, JobDriver, StartAgain
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.observability.progress import EpochListener, EpochProgress
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.checkpoint.offsets import has_offsets, rebuild_directory
from lakestate.spark.execution.compile import CompiledPipeline, combine_sources
from lakestate.spark.execution.epoch_runner import EpochRunner
from lakestate.spark.session import apply_settings, use_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class EpochNotFinishedError(RuntimeError):
    """What Spark is told. The reason is in `PipelineQuery.exception()`."""


class PipelineQuery:
    """A pipeline at work. Made by `Pipeline.start`."""

    def __init__(
        self,
        pipeline: CompiledPipeline,
        driver: JobDriver,
        directory: SparkDirectory,
        trigger: Mapping[str, Any],
        listeners: Sequence[EpochListener],
    ) -> None:
        self._pipeline = pipeline
        self._driver = driver
        self._directory = directory
        self._trigger = dict(trigger)
        self._listeners = tuple(listeners)
        self._runner = EpochRunner(pipeline, directory.path)
        self._epoch_lock = RLock()
        """Held by an epoch as long as it runs, and by whoever changes which query of Spark's counts."""
        self._stop_lock = Lock()
        self._epoch_thread: int | None = None
        self._ended = Event()
        self._is_stopping = False
        self._is_drained = False
        self._starts_again = False
        self._is_prepared = False
        self._failure: BaseException | None = None
        self._last: EpochProgress | None = None
        self._spark_query = self._launch()
        self._watcher = Thread(target=self._watch, name="lakestate-query", daemon=True)
        self._watcher.start()

    @property
    def isActive(self) -> bool:  # noqa: N802
        """True until it was stopped, failed, or read everything that it was to read."""
        return not self._ended.is_set()

    @property
    def lastProgress(self) -> EpochProgress | None:  # noqa: N802
        """That of the newest epoch."""
        return self._last

    def exception(self) -> BaseException | None:
        """What made it fail, or None."""
        return self._failure

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait until it ends, for at most so many seconds; raise what made it fail."""
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def stop(self, *, drain: bool = False) -> None:
        """Let the running epoch finish, and end. Stopping twice is fine.

        With `drain` a last epoch closes what is open: `on_close` is called, and sinks finish
        and commit their files. A job that has no epoch yet has nothing open, and gets none by
        this. If the pipeline has failed, nothing can be drained: then this raises what made it fail.
        """
        if self._epoch_thread == get_ident():
            raise InvalidInputError(
                "a pipeline cannot be stopped from within its own epoch, which it would wait for",
                found="stop() called by a listener or a transform",
                action="call it from another thread, or raise an error to end the job",
            )
        with self._stop_lock:
            try:
                self._end()
                if drain and not self._is_drained:
                    self._drain()
            finally:
                self._driver.stop()

    def _end(self) -> None:
        with self._epoch_lock:
            self._is_stopping = True
            query = self._spark_query
        query.stop()
        self._ended.wait()

    def _drain(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            with self._epoch_lock, use_settings(self._pipeline.schemas.session):
                # An epoch before the first batch would have no offsets to go on from, and Spark
                # would begin with a batch whose epoch is taken.
                self._starts_again = self._driver.parent is not None or self._driver.refresh() is not None
                while self._starts_again:
                    self._starts_again = False
                    self._run_epoch(None, self._driver.next_epoch())
        except BaseException as failure:
            self._failure = failure
            raise
        self._is_drained = True

    def _launch(self) -> StreamingQuery:
        """Start Spark's query where the newest epoch ends."""
        parent = self._driver.parent
        rebuild_directory(self._directory.path, () if parent is None else parent.engine_files)
        return (
            combine_sources(self._pipeline.graph)
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", self._directory.path.as_uri())
            .trigger(**self._trigger)
            .start()
        )

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._epoch_lock:
            if self._is_stopping:
                raise EpochNotFinishedError("the pipeline is stopping")
            try:
                self._prepare(batch.sparkSession)
                self._run_epoch(batch, Epoch.of_batch(batch_id))
            except BaseException as failure:  # noqa: BLE001
                self._failure = failure
                raise EpochNotFinishedError(f"epoch {batch_id + 1}: see query.exception()") from None
            if self._starts_again:
                raise EpochNotFinishedError("another driver's epoch stands; starting again from it")

    def _run_epoch(self, batch: DataFrame | None, epoch: Epoch) -> None:
        def run(plan: EpochPlan) -> EpochResult:
            return self._runner.run(plan, batch)

        self._epoch_thread = get_ident()
        try:
            outcome = self._driver.run_epoch(epoch, run, then_stop=batch is None)
            if isinstance(outcome, AlreadyPublished):
                raise _out_of_step_error(self._driver.parent, epoch)
            if isinstance(outcome, StartAgain):
                self._starts_again = True
            if isinstance(outcome, EpochFinished):
                self._last = outcome.progress
                for listener in self._listeners:
                    listener.on_epoch(outcome.progress)
        finally:
            self._epoch_thread = None

    def _prepare(self, session: SparkSession) -> None:
        """Set up the session of Spark's query once. It is a clone, so the user's is not touched."""
        if self._is_prepared:
            return
        apply_settings(session)
        # Work beside the stream and the last epoch run there too: Spark keeps other Python
        # workers for other settings, and starting those takes longer than a small epoch.
        self._pipeline.schemas.session = session
        self._is_prepared = True

    def _watch(self) -> None:
        try:
            self._follow()
        except BaseException as failure:  # noqa: BLE001
            self._failure = failure
        finally:
            self._directory.remove()
            self._ended.set()

    def _follow(self) -> None:
        """Wait for Spark's query, and start it again where another driver's epoch stands."""
        while True:
            try:
                self._spark_query.awaitTermination()
            except PySparkException as failure:
                if not self._is_stopping and not self._starts_again and self._failure is None:
                    self._failure = failure
            # Not between the two halves of `_end`: it would stop the query before this one.
            with self._epoch_lock:
                if not self._starts_again or self._is_stopping:
                    return
                self._starts_again = False
                self._is_prepared = False
                self._spark_query = self._launch()


def _out_of_step_error(newest: Manifest | None, epoch: Epoch) -> IncompatibleStateError:
    """Spark's directory is made to go on after the newest epoch, so no batch of it comes twice."""
    assert newest is not None, "what is published has a manifest"
    return IncompatibleStateError(
        "Spark brings a batch whose epoch is published already, so that its rows would be skipped",
        object_name=f"epoch {epoch} of job {newest.job_id}",
        found=f"batch {epoch.batch_id}",
        expected=f"batch {newest.epoch.next().batch_id}",
        action="let nothing else write to Spark's checkpoint directory; restart the job"
        if has_offsets(newest.engine_files, newest.epoch)
        else f"epoch {newest.epoch} holds no offsets of Spark's, so there is nothing to go on from: "
        "the job was drained before it had read anything; start it under another job id",
    )
