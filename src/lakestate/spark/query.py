"""`PipelineQuery`: a running pipeline, from its first epoch to its last.

Spark's query delivers the batches, and the driver turns each into an epoch. The query keeps the error that
made an epoch fail: Spark would pass on only its text, so it learns only that the epoch did not finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Event, Lock, RLock, Thread, get_ident
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult
from lakestate.coordinator.job_driver import AlreadyPublished, EpochFinished, JobDriver, StartAgain
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.observability.listeners import Listener, tell_epoch
from lakestate.observability.progress import EpochProgress
from lakestate.observability.progress_line import ProgressLine
from lakestate.protocol.metadata import CompletionStatus, Manifest
from lakestate.protocol.values import Epoch
from lakestate.runtime.sink_step import has_open_files
from lakestate.spark.checkpoint.directory import SparkDirectory, full_disk_error
from lakestate.spark.checkpoint.offsets import files_to_rebuild, has_offsets, rebuild_directory
from lakestate.spark.execution.compile import CompiledPipeline, combine_sources
from lakestate.spark.execution.epoch_runner import EpochRunner
from lakestate.spark.execution.work import SparkWork
from lakestate.spark.session import apply_settings, free_query_name, use_settings
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECENT_EPOCHS = 100
"""As many epochs as Spark keeps by default."""


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
    ) -> None:
        self._pipeline = pipeline
        self._driver = driver
        self._directory = directory
        self._trigger = dict(trigger)
        self._listeners = tuple(listeners)
        self._work = work
        self._runner = EpochRunner(pipeline, directory.path)
        self._epoch_lock = RLock()
        """Held while an epoch runs, and while `_spark_query` is replaced."""
        self._stop_lock = Lock()
        self._epoch_thread: int | None = None
        self._running: Epoch | None = None
        self._ended = Event()
        self._is_stopping = False
        self._starts_again = False
        self._is_prepared = False
        self._failure: BaseException | None = None
        self._recent: deque[EpochProgress] = deque(maxlen=RECENT_EPOCHS)
        self._spark_query = self._launch()
        self._watcher = Thread(target=self._watch, name="lakestate-query", daemon=True)
        self._watcher.start()

    def __repr__(self) -> str:
        newest = f"epoch {self._recent[-1].epoch}" if self._recent else "no epoch yet"
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
        return self._recent[-1] if self._recent else None

    @property
    def recentProgress(self) -> list[EpochProgress]:  # noqa: N802
        """The progress of the last 100 epochs of this run, oldest first."""
        return list(self._recent)

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

        If rows keep arriving, it may never return. If the query fails, raise its error.
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
            running=lambda: self._running,
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
        if self._epoch_thread == get_ident():
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
            with self._epoch_lock, use_settings(self._pipeline.schemas.session):
                self._work.raise_if_cancelled()
                if self._driver.parent is None:
                    # A driver that we have fenced may have published the first one meanwhile.
                    self._driver.refresh()
                self._starts_again = True
                while self._starts_again and self._has_to_end(ending):
                    self._starts_again = False
                    self._run_epoch(None, self._driver.next_epoch(), ending)
        except BaseException as failure:
            self._failure = self._work.reason or failure
            raise self._failure from failure

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
        parent = self._driver.parent
        files = files_to_rebuild(
            self._driver.read_engine_files(),
            None if parent is None else parent.epoch,
            self._runner.source_paths.check,
        )
        try:
            rebuild_directory(self._directory.path, files)
        except OSError as failure:
            raise full_disk_error(failure, self._directory.path) or failure from failure
        return (
            combine_sources(self._pipeline.graph)
            .writeStream.foreachBatch(self._on_batch)
            .queryName(free_query_name(self._pipeline.schemas.session, self.name))
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
                self._failure = self._work.reason or failure
                raise EpochNotFinishedError(f"epoch {batch_id + 1}: see query.exception()") from None
            if self._starts_again:
                raise EpochNotFinishedError("another driver published this epoch; restarting from it")

    def _run_epoch(self, batch: DataFrame | None, epoch: Epoch, ending: Ending) -> None:
        def run(plan: EpochPlan) -> EpochResult:
            return self._runner.run(plan, batch)

        self._epoch_thread, self._running = get_ident(), epoch
        try:
            with self._work.tag(self._pipeline.schemas.session):
                outcome = self._driver.run_epoch(epoch, run, ending)
            if isinstance(outcome, AlreadyPublished):
                raise _out_of_step_error(self._driver.parent, epoch)
            if isinstance(outcome, StartAgain):
                self._starts_again = True
            if isinstance(outcome, EpochFinished):
                self._recent.append(outcome.progress)
                tell_epoch(self._listeners, outcome.progress)
        finally:
            self._epoch_thread = self._running = None

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
            if not self._is_stopping and self._failure is None:
                # Spark ends the older of two runs of one query in a process, as if it had been stopped.
                self._driver.check_claim()
        except BaseException as failure:  # noqa: BLE001
            self._failure = failure
        finally:
            self._directory.remove()
            self._close_lines()
            self._ended.set()

    def _follow(self) -> None:
        """Wait for Spark's query. Restart it if another driver published the epoch it was running."""
        while True:
            try:
                self._spark_query.awaitTermination()
            except PySparkException as failure:
                if not self._is_stopping and not self._starts_again and self._failure is None:
                    full = full_disk_error(failure, self._directory.path)
                    self._failure = full or error_from_spark(failure, "run the query")
                    self._failure.__cause__ = failure
            # Under the lock: between the two halves of `_end`, it would stop the query that just ended.
            with self._epoch_lock:
                if not self._starts_again or self._is_stopping:
                    return
                self._starts_again = False
                self._is_prepared = False
                self._spark_query = self._launch()

    def _close_lines(self) -> None:
        """End lines on the terminal, so that a prompt does not follow on the same line."""
        for listener in self._listeners:
            if isinstance(listener, ProgressLine):
                listener.close()


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
