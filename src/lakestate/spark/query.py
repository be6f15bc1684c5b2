"""`PipelineQuery`: a running pipeline, from its first epoch to its last.

Spark's query delivers the batches, and the driver turns each into an epoch. The query keeps the error that
made an epoch fail: Spark would pass on only its text, so it learns only that the epoch did not finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event, Lock, RLock, Thread, get_ident
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult
from lakestate.coordinator.job_driver import AlreadyPublished, EpochFinished, JobDriver, StartAgain
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.observability.listeners import Listener, tell_epoch
from lakestate.observability.progress import EpochProgress
from lakestate.protocol.metadata import CompletionStatus, Manifest
from lakestate.protocol.values import Epoch
from lakestate.runtime.sink_step import has_open_files
from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.checkpoint.offsets import files_to_rebuild, has_offsets, rebuild_directory
from lakestate.spark.execution.compile import CompiledPipeline, combine_sources
from lakestate.spark.execution.epoch_runner import EpochRunner
from lakestate.spark.session import apply_settings, use_settings
from lakestate.spark.tasks.task_errors import error_from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class EpochNotFinishedError(RuntimeError):
    """Raised to Spark when an epoch did not finish. The reason is in `PipelineQuery.exception()`."""


class PipelineQuery:
    """A running pipeline, returned by `Pipeline.start`."""

    def __init__(
        self,
        pipeline: CompiledPipeline,
        driver: JobDriver,
        directory: SparkDirectory,
        trigger: Mapping[str, Any],
        listeners: Sequence[Listener],
    ) -> None:
        self._pipeline = pipeline
        self._driver = driver
        self._directory = directory
        self._trigger = dict(trigger)
        self._listeners = tuple(listeners)
        self._runner = EpochRunner(pipeline, directory.path)
        self._epoch_lock = RLock()
        """Held while an epoch runs, and while `_spark_query` is replaced."""
        self._stop_lock = Lock()
        self._epoch_thread: int | None = None
        self._ended = Event()
        self._is_stopping = False
        self._starts_again = False
        self._is_prepared = False
        self._failure: BaseException | None = None
        self._last: EpochProgress | None = None
        self._spark_query = self._launch()
        self._watcher = Thread(target=self._watch, name="lakestate-query", daemon=True)
        self._watcher.start()

    @property
    def isActive(self) -> bool:  # noqa: N802
        """True until the query is stopped, fails, or has read everything its trigger asks for."""
        return not self._ended.is_set()

    @property
    def lastProgress(self) -> EpochProgress | None:  # noqa: N802
        """The progress of the newest epoch, or None before the first."""
        return self._last

    def exception(self) -> BaseException | None:
        """The error that made the query fail, or None."""
        return self._failure

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait until the query ends, for at most `timeout` seconds. If it failed, raise its error.

        Returns False if it is still running.
        """
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def stop(self, *, finish_files: bool = False, drain: bool = False) -> None:
        """Let the running epoch finish, then end the query. Stopping twice is fine.

        With `finish_files`, a last epoch finishes and commits the open files of sinks. It calls nothing
        of operators, and is left out if no file is open: the job pauses, and can be started again.

        With `drain`, the stream has ended: a last epoch calls `on_close` of operators, finishes files,
        and marks the job as finished. It can only be started again with `start(reopen=True)`. A job
        without any epoch has nothing to close, and stays as it is.

        A pipeline that has failed can only be stopped: with `finish_files` and `drain`, `stop` raises
        its error.
        """
        if self._epoch_thread == get_ident():
            raise InvalidInputError(
                "a pipeline cannot be stopped from within its own epoch: stop() waits for that epoch",
                found="stop() called by a listener or a transform",
                action="call it from another thread, or raise an error to end the job",
            )
        with self._stop_lock:
            try:
                self._end()
                if drain:
                    self._run_last_epoch(Ending.END_OF_STREAM)
                elif finish_files:
                    self._run_last_epoch(Ending.FINISH_FILES)
            finally:
                self._driver.stop()

    def _end(self) -> None:
        with self._epoch_lock:
            self._is_stopping = True
            query = self._spark_query
        query.stop()
        self._ended.wait()

    def _run_last_epoch(self, ending: Ending) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            with self._epoch_lock, use_settings(self._pipeline.schemas.session):
                if self._driver.parent is None:
                    # A driver that we have fenced may have published the first one meanwhile.
                    self._driver.refresh()
                self._starts_again = True
                while self._starts_again and self._has_to_end(ending):
                    self._starts_again = False
                    self._run_epoch(None, self._driver.next_epoch(), ending)
        except BaseException as failure:
            self._failure = failure
            raise

    def _has_to_end(self, ending: Ending) -> bool:
        """Whether the newest epoch left open what an epoch with this ending closes."""
        newest = self._driver.parent
        # An epoch before the first batch would have no offsets to continue from, and Spark would begin
        # with a batch whose epoch is already taken.
        if newest is None or newest.status is CompletionStatus.FINAL:
            return False
        sinks = {node.step_id: node.sink for node in self._pipeline.graph.sinks}
        return ending is Ending.END_OF_STREAM or has_open_files(sinks, newest)

    def _launch(self) -> StreamingQuery:
        """Start Spark's query at the end of the newest epoch."""
        files = files_to_rebuild(self._driver.parent, self._runner.source_paths.check)
        rebuild_directory(self._directory.path, files)
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
                self._run_epoch(batch, Epoch.of_batch(batch_id), Ending.CONTINUE)
            except BaseException as failure:  # noqa: BLE001
                self._failure = failure
                raise EpochNotFinishedError(f"epoch {batch_id + 1}: see query.exception()") from None
            if self._starts_again:
                raise EpochNotFinishedError("another driver published this epoch; restarting from it")

    def _run_epoch(self, batch: DataFrame | None, epoch: Epoch, ending: Ending) -> None:
        def run(plan: EpochPlan) -> EpochResult:
            return self._runner.run(plan, batch)

        self._epoch_thread = get_ident()
        try:
            outcome = self._driver.run_epoch(epoch, run, ending)
            if isinstance(outcome, AlreadyPublished):
                raise _out_of_step_error(self._driver.parent, epoch)
            if isinstance(outcome, StartAgain):
                self._starts_again = True
            if isinstance(outcome, EpochFinished):
                self._last = outcome.progress
                tell_epoch(self._listeners, outcome.progress)
        finally:
            self._epoch_thread = None

    def _prepare(self, session: SparkSession) -> None:
        """Set up the session of Spark's query, once. It is a clone: the user's session does not change."""
        if self._is_prepared:
            return
        apply_settings(session)
        # Compaction and the last epoch use this session too: Spark keeps separate Python workers
        # for other settings, and starting those takes longer than a small epoch.
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
        """Wait for Spark's query. Restart it if another driver published the epoch it was running."""
        while True:
            try:
                self._spark_query.awaitTermination()
            except PySparkException as failure:
                if not self._is_stopping and not self._starts_again and self._failure is None:
                    self._failure = error_from_spark(failure, "run the query")
                    self._failure.__cause__ = failure
            # Under the lock: between the two halves of `_end`, it would stop the query that just ended.
            with self._epoch_lock:
                if not self._starts_again or self._is_stopping:
                    return
                self._starts_again = False
                self._is_prepared = False
                self._spark_query = self._launch()


def _out_of_step_error(newest: Manifest | None, epoch: Epoch) -> IncompatibleStateError:
    """Spark's directory is rebuilt to continue after the newest epoch, so no batch should come twice."""
    assert newest is not None, "what is published has a manifest"
    return IncompatibleStateError(
        "Spark delivered a batch whose epoch is already published: its rows would be skipped",
        object_name=f"epoch {epoch} of job {newest.job_id}",
        found=f"batch {epoch.batch_id}",
        expected=f"batch {newest.epoch.next().batch_id}",
        action="make sure that nothing else writes to Spark's checkpoint directory, and restart the job"
        if has_offsets(newest.engine_files, newest.epoch)
        else f"start the job under another job id: epoch {newest.epoch} holds no Spark offsets to continue "
        "from, because the job was drained before it had read anything",
    )
