"""`PipelineQuery`: a running pipeline, from its first epoch to its last.

Spark's query delivers the batches, and the driver turns each into an epoch. The query keeps the error that
made an epoch fail: Spark would pass on only its text, so it learns only that the epoch did not finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event, Lock, RLock, Thread
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from lakestate.coordinator.epoch_plan import Ending
from lakestate.coordinator.job_driver import JobDriver
from lakestate.errors import InvalidInputError
from lakestate.observability.listeners import Listener
from lakestate.observability.progress import EpochProgress
from lakestate.observability.progress_line import ProgressLine
from lakestate.protocol.metadata import CompletionStatus
from lakestate.runtime.sink_step import has_open_files
from lakestate.spark.checkpoint.directory import SparkDirectory, full_disk_error
from lakestate.spark.checkpoint.offsets import files_to_rebuild, rebuild_directory
from lakestate.spark.execution.compile import CompiledPipeline, combine_sources
from lakestate.spark.execution.work import SparkWork
from lakestate.spark.kafka_source import name_kafka_sources
from lakestate.spark.query_epochs import QueryEpochs
from lakestate.spark.session import free_query_name
from lakestate.spark.silence import SilenceWatch
from lakestate.spark.stopping import (
    StopAttempt,
    StopCalls,
    StopOnSignal,
    Timeout,
    ending_of,
    timeout_seconds,
    wait_interruptibly,
)
from lakestate.spark.tasks.task_errors import error_from_spark
from lakestate.spark.triggers import ends_by_itself, quiet_s, time_beside_batch
from lakestate.spark.versions.quick_logs import use_quick_logs, wait_for_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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
        work: SparkWork,
        idle_us: int | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._driver = driver
        self._directory = directory
        self._trigger = dict(trigger)
        self._listeners = tuple(listeners)
        self._work = work
        # A query that ends by itself reads what there is when it starts, and looks no further.
        is_polled = not ends_by_itself(trigger)
        self._epochs = QueryEpochs(
            pipeline, driver, directory.path, self._listeners, work, is_polled=is_polled
        )
        self._epoch_lock = RLock()
        """Held while an epoch runs, and while `_spark_query` is replaced."""
        self._stop_lock = Lock()
        self._ended = Event()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._silence = SilenceWatch(self._epochs.due, quiet_s(trigger, idle_us), self._run_when_silent)
        if driver.parent is None and pipeline.has_initial_state:
            self._epochs.run_without_batch(Ending.FILL)
        self._spark_query = self._launch()
        self._watcher = Thread(target=self._watch, name="lakestate-query", daemon=True)
        self._watcher.start()
        self._silence.start()

    def __repr__(self) -> str:
        newest = f"epoch {self._epochs.recent[-1].epoch}" if self._epochs.recent else "no epoch yet"
        return f"<PipelineQuery {self.name!r}: {self._state()}, {newest}>"

    def _state(self) -> str:
        if self._failure is not None:
            return f"failed with {type(self._failure).__name__}"
        if self._ended.is_set():
            return "ended"
        return "stopping" if self._is_stopping else "running"

    @property
    def name(self) -> str:
        """The job id. Spark's UI shows the query under this name, with a number if it is taken."""
        return self._driver.job_id

    @property
    def id(self) -> str:
        """Identifies Spark's query: the same at every start of the job, because it is in the manifest."""
        return str(self._spark_query.id)

    @property
    def runId(self) -> str:  # noqa: N802
        """Identifies this run of Spark's query."""
        return str(self._spark_query.runId)

    @property
    def isActive(self) -> bool:  # noqa: N802
        """True until the query is stopped, fails, or has read everything its trigger asks for."""
        return not self._ended.is_set()

    @property
    def lastProgress(self) -> EpochProgress | None:  # noqa: N802
        """The progress of the newest epoch, or None before the first."""
        return self._epochs.recent[-1] if self._epochs.recent else None

    @property
    def recentProgress(self) -> list[EpochProgress]:  # noqa: N802
        """The progress of the last 100 epochs of this run, oldest first."""
        return list(self._epochs.recent)

    def exception(self) -> BaseException | None:
        """The error that made the query fail, or None."""
        return self._failure

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait until the query ends, for at most `timeout` seconds. If it failed, raise its error.

        Returns False if it is still running.
        """
        ended = wait_interruptibly(self._ended, timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that the sources have now is in a committed epoch. For tests.

        If rows keep arriving, it may never return. If the query fails, raise its error. A query that ends by
        itself has ended when it returns.
        """
        self._refuse_in_own_epoch("processAllAvailable")
        while not self._ended.is_set():
            waited_for = self._spark_query
            try:
                waited_for.processAllAvailable()
            except PySparkException:
                # Why is known when the query has ended, or has been launched again.
                while self._spark_query is waited_for and not self._ended.wait(0.01):
                    continue
            else:
                if ends_by_itself(self._trigger):
                    wait_interruptibly(self._ended, None)
                break
        if self._failure is not None:
            raise self._failure

    def stop(
        self,
        *,
        finish_files: bool = False,
        drain: bool = False,
        timeout: Timeout | None = None,
    ) -> None:
        """Let the running epoch finish, then end the query. Stopping twice is fine.

        With `finish_files`, a last epoch finishes and commits the open files of sinks. It calls nothing
        of operators, and is left out if no file is open: the job pauses, and can be started again.

        With `drain`, the stream has ended: a last epoch calls `on_close` of operators, finishes files,
        and marks the job as finished. It can only be started again with `start(reopen=True)`. A job
        without any epoch has nothing to close, and stays as it is.

        A pipeline that has failed can only be stopped: with `finish_files` and `drain`, `stop` raises
        its error.

        `timeout` is in seconds, or a text such as "30 seconds". After it the running epoch is cancelled,
        and `stop` raises `StopTimeoutError`. Nothing of the epoch is published; the next start runs it again.
        """
        self._refuse_in_own_epoch("stop")
        limit_s = timeout_seconds(timeout)
        self.begin_stop(ending_of(finish_files=finish_files, drain=drain)).wait(limit_s)

    def begin_stop(self, ending: Ending) -> StopAttempt:
        """Begin to stop in a thread of its own, and return at once."""
        calls = StopCalls(
            self.name,
            stop=lambda: self._stop(ending),
            cancel=self._cancel,
            running=lambda: self._epochs.running,
            failure=self.exception,
        )
        return StopAttempt(calls)

    def run_until_stopped(self, *, drain: bool = False, timeout: Timeout | None = None) -> None:
        """Wait until the query ends or the process gets SIGINT (Ctrl-C) or SIGTERM; then finish files.

        At the first signal the running epoch finishes, and then the open files. At the second, the running
        epoch is cancelled, and KeyboardInterrupt or SystemExit is raised. `drain` and `timeout` are those
        of `stop`. Call it from the main thread.
        """
        ending = ending_of(finish_files=True, drain=drain)
        with StopOnSignal(lambda: self, ending, timeout_seconds(timeout)):
            self.awaitTermination()

    def _refuse_in_own_epoch(self, call: str) -> None:
        if self._epochs.is_own_thread:
            raise InvalidInputError(
                f"a pipeline cannot be stopped from within its own epoch: {call}() waits for that epoch"
                if call == "stop"
                else f"{call}() waits for the epoch that calls it",
                found=f"{call}() called by a listener or a transform",
                action="call it from another thread, or raise an error to end the job",
            )

    def _stop(self, ending: Ending) -> None:
        with self._stop_lock:
            try:
                self._end()
                if ending is not Ending.CONTINUE:
                    self._run_last_epoch(ending)
            finally:
                self._driver.stop()
                self._close_lines()

    def _cancel(self, reason: BaseException) -> None:
        """Cancel what runs on Spark for this query. What fails because of it fails with this reason."""
        self._is_stopping = True
        self._work.cancel(self._pipeline.schemas.session, reason)

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
            with self._epoch_lock:
                self._work.raise_if_cancelled()
                if self._driver.parent is None:
                    # A driver that we have fenced may have published the first one meanwhile.
                    self._driver.refresh()
                epochs = self._epochs
                epochs.must_start_again = True
                while epochs.must_start_again and self._has_to_end(ending):
                    epochs.must_start_again = False
                    epochs.run_without_batch(ending)
        except BaseException as failure:
            self._failure = self._work.reason or failure
            raise self._failure from failure

    def _has_to_end(self, ending: Ending) -> bool:
        """Whether the newest epoch left open what an epoch with this ending closes."""
        newest = self._driver.parent
        # Without any epoch there is nothing to close, and the job stays as it is.
        if newest is None or newest.status is CompletionStatus.FINAL:
            return False
        sinks = {node.step_id: node.sink for node in self._pipeline.graph.sinks}
        return ending is Ending.END_OF_STREAM or has_open_files(sinks, newest)

    def _launch(self) -> StreamingQuery:
        """Start Spark's query at the end of the newest epoch."""
        parent = self._driver.parent
        self._epochs.begin()
        self._silence.note_epoch()
        files = files_to_rebuild(
            self._driver.read_engine_files(),
            None if parent is None else parent.epoch,
            self._epochs.runner.source_paths.check,
        )
        try:
            rebuild_directory(self._directory.path, files)
        except OSError as failure:
            raise full_disk_error(failure, self._directory.path) or failure from failure
        rows = combine_sources(self._pipeline.graph)
        writer = (
            rows.writeStream.foreachBatch(self._on_batch)
            .queryName(free_query_name(self._pipeline.schemas.session, self.name))
            .option("checkpointLocation", self._directory.path.as_uri())
            .trigger(**self._trigger)
        )
        with use_quick_logs(rows.sparkSession):
            query = writer.start()
            wait_for_sources(query)
        return query

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._epoch_lock:
            if self._is_over():
                # While the batch waited for an epoch without rows, this was decided.
                raise EpochNotFinishedError("the pipeline is stopping")
            try:
                self._epochs.run_batch(batch, batch_id, self._trigger_ms(batch_id - 1))
            except BaseException as failure:  # noqa: BLE001
                self._failure = self._work.reason or failure
                epoch = self._epochs.numbers.epoch_of(batch_id)
                raise EpochNotFinishedError(f"epoch {epoch}: see query.exception()") from None
            self._silence.note_epoch()
            if self._epochs.must_start_again:
                raise EpochNotFinishedError("another driver published this epoch; restarting from it")

    def _trigger_ms(self, batch_id: int) -> float | None:
        """What Spark needed for a batch beside the epoch, if it is the newest that has ended."""
        # The first batch may come before `_launch` returns.
        query = getattr(self, "_spark_query", None)
        return None if query is None else time_beside_batch(query, batch_id)

    def _is_over(self) -> bool:
        """Whether Spark's query runs no further epoch. Asked under the lock."""
        return self._is_stopping or self._epochs.must_start_again or self._failure is not None

    def _run_when_silent(self) -> None:
        """Run an epoch without rows. Called by the watch; a batch that comes meanwhile waits."""
        with self._epoch_lock:
            if self._is_over() or not self._silence.is_due():
                return
            self._run_without_rows()
            if not self._is_over():
                return
            query = self._spark_query
        # Not under the lock: Spark waits for its batch, and that may wait for the lock.
        query.stop()

    def _run_at_the_end(self) -> None:
        """Run what is due after the last batch, so that a run that ends by itself leaves nothing waiting."""
        if ends_by_itself(self._trigger) and not self._is_over() and self._epochs.due.is_due():
            # Spark ends the older of two runs of one query in a process, as if it had been stopped.
            self._driver.check_claim()
            self._run_without_rows()

    def _run_without_rows(self) -> None:
        try:
            self._epochs.run_without_batch()
        except BaseException as failure:  # noqa: BLE001
            self._failure = self._work.reason or failure
        self._silence.note_epoch()

    def _watch(self) -> None:
        try:
            self._follow()
            if not self._is_stopping and self._failure is None:
                # Spark ends the older of two runs of one query in a process, as if it had been stopped.
                self._driver.check_claim()
        except BaseException as failure:  # noqa: BLE001
            self._failure = failure
        finally:
            with self._epoch_lock:
                # From here on no epoch begins.
                self._silence.stop()
            self._directory.remove()
            self._close_lines()
            self._ended.set()

    def _follow(self) -> None:
        """Wait for Spark's query. Restart it if another driver published the epoch it was running."""
        while True:
            try:
                self._spark_query.awaitTermination()
            except PySparkException as failure:
                if not self._is_over():
                    full = full_disk_error(failure, self._directory.path)
                    kafka = name_kafka_sources(self._pipeline.graph.sources)
                    self._failure = full or error_from_spark(failure, "run the query", kafka=kafka)
                    self._failure.__cause__ = failure
            # Under the lock: between the two halves of `_end`, it would stop the query that just ended.
            with self._epoch_lock:
                self._run_at_the_end()
                if self._is_stopping or self._failure is not None or not self._epochs.must_start_again:
                    return
                self._spark_query = self._launch()

    def _close_lines(self) -> None:
        """End lines on the terminal, so that a prompt does not follow on the same line."""
        for listener in self._listeners:
            if isinstance(listener, ProgressLine):
                listener.close()
