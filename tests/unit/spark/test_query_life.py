"""How a query follows Spark's query, with a stand-in for Spark that brings batches from a thread."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from tests.support.spark.stand_in import (
    AGAIN,
    DEADLINE_S,
    DONE,
    ENDS,
    STORED,
    Driver,
    Session,
    Spark,
    cancelled,
    stored,
)

import lakestate as ls
from lakestate.coordinator.engine.due_epochs import FollowedTime
from lakestate.coordinator.epoch_plan import Ending
from lakestate.coordinator.epoch_progress import AlreadyPublished, EpochFinished
from lakestate.spark import query as query_module
from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.execution.work import SparkWork
from lakestate.spark.query import PipelineQuery
from lakestate.spark.session import SESSION_SETTINGS


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    spark = Spark()
    monkeypatch.setattr(query_module, "combine_sources", lambda graph: spark)
    return spark


@pytest.fixture
def session() -> Any:
    """The user's."""
    return Session()


@pytest.fixture
def query(spark: Spark, session: Any, tmp_path: Path) -> Callable[..., PipelineQuery]:
    def start(driver: Driver, batches: int = 0, listeners: Any = ()) -> PipelineQuery:
        spark.batches = batches
        pipeline: Any = SimpleNamespace(
            graph=SimpleNamespace(sources=(), sinks=()),
            schemas=SimpleNamespace(session=session),
            follows=FollowedTime(),
            outputs_due_us=lambda newest: None,
            has_initial_state=False,
            parallelism=2,
            stages=(),
        )
        given: Any = driver
        folder = SparkDirectory(tmp_path, "job")
        return PipelineQuery(pipeline, given, folder, {}, listeners, SparkWork("job"))

    return start


Start = Callable[..., PipelineQuery]


def ends(query: PipelineQuery) -> bool:
    return query.awaitTermination(DEADLINE_S)


def wait_until(reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(DEADLINE_S * 100):
        if reached():
            return
        pause.wait(0.01)
    raise AssertionError("not reached in time")


class TestStartingAgain:
    def test_sparks_query_is_launched_again_after_an_epoch_that_replaces_ours(
        self, query: Start, spark: Spark
    ) -> None:
        running = query(Driver(DONE, AGAIN), batches=2)
        wait_until(lambda: len(spark.launched) == 2)
        assert running.isActive
        running.stop()
        assert running.exception() is None

    def test_a_stop_that_comes_meanwhile_stops_the_query_that_was_launched_again(
        self, query: Start, spark: Spark, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stoppers: list[threading.Thread] = []
        is_started = threading.Event()
        rebuild = query_module.rebuild_directory

        def stopped_meanwhile(directory: Path, files: Any) -> None:
            rebuild(directory, files)
            if spark.launched:
                is_started.wait(DEADLINE_S)
                stoppers.append(threading.Thread(target=lambda: running.stop()))
                stoppers[0].start()

        monkeypatch.setattr(query_module, "rebuild_directory", stopped_meanwhile)
        running = query(Driver(AGAIN), batches=1)
        is_started.set()
        assert ends(running)
        stoppers[0].join(DEADLINE_S)
        assert not stoppers[0].is_alive()
        assert running.exception() is None

    def test_a_launch_that_fails_is_the_reason_that_is_reported(
        self, query: Start, spark: Spark, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rebuild = query_module.rebuild_directory

        def failing(directory: Path, files: Any) -> None:
            if spark.launched:
                raise OSError("no space for Spark's logs")
            rebuild(directory, files)

        monkeypatch.setattr(query_module, "rebuild_directory", failing)
        running = query(Driver(AGAIN), batches=1)
        with pytest.raises(OSError, match="no space for Spark's logs"):
            ends(running)

    def test_a_drain_begins_again_too(self, query: Start) -> None:
        driver = Driver(AGAIN, DONE)
        running = query(driver)
        running.stop(drain=True)
        assert driver.epochs == [(1, ENDS), (2, ENDS)]


class TestABatchThatIsPublishedAlready:
    """Its rows would be skipped: Spark's directory always continues after the newest epoch."""

    def test_it_fails_the_query(self, query: Start) -> None:
        running = query(Driver(AlreadyPublished(), parent=stored(3, "offsets/2")), batches=1)
        with pytest.raises(ls.IncompatibleStateError, match="rows would be skipped") as refused:
            ends(running)
        assert (refused.value.found, refused.value.expected) == ("batch 0", "batch 3")
        assert refused.value.action is not None
        assert "restart the job" in refused.value.action

    def test_the_first_batch_of_a_job_with_an_epoch_before_it_becomes_the_next_epoch(
        self, query: Start
    ) -> None:
        driver = Driver(DONE, parent=stored(1))
        running = query(driver, batches=1)
        wait_until(lambda: bool(driver.epochs))
        running.stop()
        assert driver.epochs == [(2, Ending.CONTINUE)]


class TestStopping:
    def test_only_the_first_drain_runs_an_epoch(self, query: Start) -> None:
        driver = Driver(DONE)
        running = query(driver)
        running.stop()
        running.stop(drain=True)
        running.stop(drain=True)
        assert driver.epochs == [(1, ENDS)]
        assert driver.stops == 3

    def test_a_job_that_has_no_epoch_has_nothing_to_drain(self, query: Start) -> None:
        driver = Driver(parent=None)
        running = query(driver)
        running.stop(drain=True)
        assert driver.epochs == []
        assert running.exception() is None

    def test_an_epoch_that_a_fenced_driver_published_meanwhile_is_drained(self, query: Start) -> None:
        driver = Driver(DONE, parent=None, later=STORED)
        query(driver).stop(drain=True)
        assert driver.epochs == [(1, ENDS)]

    def test_a_drain_that_fails_raises_and_stops_the_driver(self, query: Start) -> None:
        driver = Driver(ls.FencedError("another driver has taken over"))
        running = query(driver)
        with pytest.raises(ls.FencedError):
            running.stop(drain=True)
        assert isinstance(running.exception(), ls.FencedError)
        assert driver.stops == 1

    def test_a_failed_epoch_is_what_a_drain_raises(self, query: Start) -> None:
        driver = Driver(ls.StorageUnavailableError("no answer"))
        running = query(driver, batches=1)
        with pytest.raises(ls.StorageUnavailableError, match="no answer"):
            ends(running)
        with pytest.raises(ls.StorageUnavailableError, match="no answer"):
            running.stop(drain=True)
        assert driver.epochs == [(1, Ending.CONTINUE)]

    def test_a_listener_cannot_stop_its_own_query(self, query: Start) -> None:
        is_started = threading.Event()

        class Stops:
            def on_epoch(self, progress: Any) -> None:
                is_started.wait(DEADLINE_S)
                running.stop()

        running = query(Driver(DONE), batches=1, listeners=[Stops()])
        is_started.set()
        with pytest.raises(ls.InvalidInputError, match="cannot be stopped from within its own epoch"):
            ends(running)

    def test_the_users_session_has_its_own_settings_again_after_a_drain(
        self, query: Start, session: Any
    ) -> None:
        name = next(iter(SESSION_SETTINGS))
        session.conf.set(name, "of the user")
        query(Driver(DONE)).stop(drain=True)
        assert session.conf == {name: "of the user"}

    def test_the_folder_of_sparks_logs_goes_when_the_query_ends(self, query: Start, tmp_path: Path) -> None:
        running = query(Driver())
        assert len(list(tmp_path.iterdir())) == 1
        running.stop()
        assert list(tmp_path.iterdir()) == []


class TestTakenOver:
    def test_a_query_that_spark_ends_because_another_driver_has_the_job_fails(
        self, query: Start, spark: Spark
    ) -> None:
        driver = Driver()
        running = query(driver)
        driver.is_fenced = True
        spark.launched[0].stop()
        with pytest.raises(ls.FencedError):
            ends(running)
        assert repr(running) == "<PipelineQuery 'job': failed with FencedError, no epoch yet>"

    def test_one_that_ends_by_itself_does_not(self, query: Start, spark: Spark) -> None:
        running = query(Driver())
        spark.launched[0].stop()
        assert ends(running)
        assert running.exception() is None


class TestFullDisk:
    def test_the_directory_of_sparks_logs_is_named(self, query: Start, spark: Spark, tmp_path: Path) -> None:
        running = query(Driver())
        spark.launched[0].error = PySparkException("java.io.IOException: No space left on device")
        spark.launched[0].stop()
        with pytest.raises(ls.StorageUnavailableError, match="Spark cannot write its logs") as full:
            ends(running)
        assert (full.value.object_name, full.value.found) == (str(tmp_path), "No space left on device")

    def test_it_is_named_when_the_logs_are_rebuilt_too(
        self, query: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(directory: Path, files: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(query_module, "rebuild_directory", full)
        with pytest.raises(ls.StorageUnavailableError, match="No space left on device"):
            query(Driver())


class TestWhatAQueryTells:
    def test_its_name_ids_progress_and_state(self, query: Start, spark: Spark) -> None:
        progress = [SimpleNamespace(epoch=number) for number in (1, 2)]
        running = query(Driver(*(EpochFinished(each) for each in progress)), batches=2)  # type: ignore[arg-type]
        running.processAllAvailable()
        assert (running.name, running.id, running.runId) == ("job", "query", "run")
        assert running.recentProgress == progress
        assert running.lastProgress is progress[1]
        assert repr(running) == "<PipelineQuery 'job': running, epoch 2>"
        running.stop()
        assert repr(running) == "<PipelineQuery 'job': ended, epoch 2>"

    def test_its_name_in_spark_has_a_number_if_another_query_has_it(
        self, query: Start, spark: Spark, session: Any
    ) -> None:
        session.streams.active = [SimpleNamespace(name=name) for name in ("job", "job (2)", None)]
        query(Driver()).stop()
        assert spark.names == ["job (3)"]

    def test_waiting_for_all_rows_raises_what_failed(self, query: Start) -> None:
        running = query(Driver(ls.StorageUnavailableError("no answer")), batches=1)
        with pytest.raises(ls.StorageUnavailableError, match="no answer"):
            running.processAllAvailable()

    def test_waiting_for_all_rows_continues_with_the_query_that_is_launched_again(
        self, query: Start, spark: Spark
    ) -> None:
        running = query(Driver(DONE, AGAIN), batches=2)
        running.processAllAvailable()
        assert len(spark.launched) == 2
        running.stop()


class TestStopInTime:
    def test_the_running_epoch_is_cancelled_and_not_published(self, query: Start) -> None:
        cancelled.clear()
        is_running = threading.Event()

        def hangs_until_cancelled() -> Any:
            is_running.set()
            assert cancelled.wait(DEADLINE_S)
            raise ls.OperatorError("Spark could not run the epoch", found="SPARK_JOB_CANCELLED")

        running = query(Driver(hangs_until_cancelled), batches=1)
        assert is_running.wait(DEADLINE_S)
        with pytest.raises(
            ls.StopTimeoutError, match="epoch 1 was running; nothing of it is published"
        ) as late:
            running.stop(timeout="10 milliseconds")
        assert running.exception() is late.value
        running.stop()
        with pytest.raises(ls.StopTimeoutError):
            running.stop(finish_files=True)
