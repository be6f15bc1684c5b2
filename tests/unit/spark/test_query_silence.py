"""How a query runs epochs without rows, with a stand-in for Spark that brings batches from a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.spark.stand_in import (
    AGAIN,
    DEADLINE_S,
    DONE,
    ENDS,
    Driver,
    Session,
    Spark,
    cancelled,
    stored,
)

import lakestate as ls
from lakestate.coordinator.engine.due_epochs import FollowedTime
from lakestate.coordinator.epoch_plan import Ending
from lakestate.spark import query as query_module
from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.execution.work import SparkWork
from lakestate.spark.query import EpochNotFinishedError, PipelineQuery

AVAILABLE = {"availableNow": True}
IDLE_US = 1_000
RUNS = Ending.CONTINUE


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    spark = Spark()
    monkeypatch.setattr(query_module, "combine_sources", lambda graph: spark)
    return spark


Start = Callable[..., PipelineQuery]


@pytest.fixture
def query(spark: Spark, tmp_path: Path) -> Start:
    def start(
        driver: Driver,
        trigger: Mapping[str, Any] | None = None,
        follows: FollowedTime = FollowedTime(event_time=True),  # noqa: B008
        idle_us: int | None = IDLE_US,
    ) -> PipelineQuery:
        pipeline: Any = SimpleNamespace(
            graph=SimpleNamespace(sources=(), sinks=()),
            schemas=SimpleNamespace(session=Session()),
            follows=follows,
            outputs_due_us=lambda newest: None,
            has_initial_state=False,
            parallelism=2,
            stages=(),
        )
        spark.ends = trigger is not None
        given: Any = driver
        folder = SparkDirectory(tmp_path, "job")
        return PipelineQuery(pipeline, given, folder, trigger or {}, (), SparkWork("job"), idle_us)

    return start


def due(*outcomes: Any, epoch: int = 1) -> Driver:
    """A driver whose newest epoch has not seen the watermark that its rows have reached."""
    driver = Driver(*outcomes, parent=stored(epoch, f"offsets/{epoch - 1}"))
    driver.next_watermark_us = 7
    return driver


def wait_until(reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(DEADLINE_S * 100):
        if reached():
            return
        pause.wait(0.01)
    raise AssertionError("not reached in time")


class TestARunThatEndsByItself:
    def test_what_is_due_runs_before_it_has_ended(self, query: Start) -> None:
        driver = due(DONE)
        running = query(driver, AVAILABLE)
        assert running.awaitTermination(DEADLINE_S)
        assert driver.epochs == [(1, RUNS)]
        assert len(running.recentProgress) == 1

    def test_nothing_runs_if_nothing_is_due_or_nothing_follows_time(self, query: Start) -> None:
        idle = due()
        idle.next_watermark_us = None
        deaf = due()
        for driver, follows in ((idle, FollowedTime(event_time=True)), (deaf, FollowedTime())):
            assert query(driver, AVAILABLE, follows).awaitTermination(DEADLINE_S)
            assert driver.epochs == []

    def test_times_of_the_clock_are_unknown_after_a_start_and_count_as_due_once(self, query: Start) -> None:
        driver = due(DONE)
        driver.next_watermark_us = None
        follows = FollowedTime(processing_time=True)
        assert query(driver, AVAILABLE, follows).awaitTermination(DEADLINE_S)
        assert driver.epochs == [(1, RUNS)]

    def test_if_it_fails_the_query_has_failed(self, query: Start) -> None:
        running = query(due(ls.StorageUnavailableError("no answer")), AVAILABLE)
        with pytest.raises(ls.StorageUnavailableError, match="no answer"):
            running.awaitTermination(DEADLINE_S)

    def test_a_driver_that_has_lost_the_job_runs_nothing(self, query: Start) -> None:
        driver = due()
        driver.is_fenced = True
        with pytest.raises(ls.FencedError):
            query(driver, AVAILABLE).awaitTermination(DEADLINE_S)
        assert driver.epochs == []

    def test_if_another_driver_published_it_sparks_query_is_launched_again(
        self, query: Start, spark: Spark
    ) -> None:
        driver = due(AGAIN, DONE)
        assert query(driver, AVAILABLE).awaitTermination(DEADLINE_S)
        assert (len(spark.launched), driver.epochs) == (2, [(1, RUNS), (2, RUNS)])


class TestASilentStream:
    def test_one_epoch_runs_and_later_batches_become_later_epochs(self, query: Start, spark: Spark) -> None:
        driver = due(DONE, DONE, epoch=1)
        running = query(driver)
        wait_until(lambda: len(running.recentProgress) == 1)
        spark.launched[0].bring(1)
        running.stop()
        # Epoch 1 has batch 0, epoch 2 has none, and batch 1 becomes epoch 3.
        assert [epoch for epoch, _ in driver.epochs][1:] == [3]
        assert len(running.recentProgress) == 2

    def test_it_can_be_switched_off(self, query: Start, spark: Spark) -> None:
        driver = due(DONE)
        running = query(driver, idle_us=None)
        spark.launched[0].bring(1)
        running.stop()
        assert driver.epochs == [(2, RUNS)]

    def test_if_it_fails_the_query_ends(self, query: Start) -> None:
        running = query(due(ls.StorageUnavailableError("no answer")))
        with pytest.raises(ls.StorageUnavailableError, match="no answer"):
            running.awaitTermination(DEADLINE_S)
        with pytest.raises(ls.StorageUnavailableError, match="no answer"):
            running.stop(drain=True)

    def test_a_batch_that_waited_for_one_that_failed_is_not_run(self, query: Start, spark: Spark) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def fails() -> Any:
            begun.set()
            go_on.wait(DEADLINE_S)
            raise ls.StorageUnavailableError("no answer")

        driver = due(fails)
        running = query(driver)
        assert begun.wait(DEADLINE_S)
        refused: list[BaseException] = []

        def bring() -> None:
            try:
                spark.launched[0].bring(1)
            except EpochNotFinishedError as error:
                refused.append(error)

        batch = threading.Thread(target=bring)
        batch.start()
        go_on.set()
        batch.join(DEADLINE_S)
        assert len(refused) == 1
        with pytest.raises(ls.StorageUnavailableError):
            running.awaitTermination(DEADLINE_S)
        assert len(driver.epochs) == 1

    def test_if_another_driver_published_it_sparks_query_is_launched_again(
        self, query: Start, spark: Spark
    ) -> None:
        driver = due(AGAIN, DONE)
        running = query(driver)
        wait_until(lambda: len(running.recentProgress) == 1)
        assert (len(spark.launched), running.isActive) == (2, True)
        running.stop()

    def test_a_stop_waits_for_it_and_none_runs_afterwards(self, query: Start) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def slow() -> Any:
            begun.set()
            go_on.wait(DEADLINE_S)
            return DONE

        driver = due(slow, DONE, DONE)
        running = query(driver)
        assert begun.wait(DEADLINE_S)
        stop = threading.Thread(target=lambda: running.stop(drain=True))
        stop.start()
        assert running.isActive
        go_on.set()
        stop.join(DEADLINE_S)
        # One more is due, and may run before the stop has its turn.
        before, last = driver.epochs[:-1], driver.epochs[-1]
        assert ({ending for _, ending in before}, last[1]) == ({RUNS}, ENDS)

    def test_a_stop_with_a_time_limit_cancels_it(self, query: Start) -> None:
        begun = threading.Event()
        cancelled.clear()

        def hangs() -> Any:
            begun.set()
            cancelled.wait(DEADLINE_S)
            raise RuntimeError("a job was cancelled")

        running = query(due(hangs))
        assert begun.wait(DEADLINE_S)
        with pytest.raises(ls.StopTimeoutError, match="nothing of it is published"):
            running.stop(timeout=0.05)
        assert isinstance(running.exception(), ls.StopTimeoutError)
