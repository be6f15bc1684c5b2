"""How a query follows Spark's query, with a stand-in for Spark that brings batches from a thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkRuntimeError

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending
from lakestate.coordinator.job_driver import AlreadyPublished, EpochFinished, StartAgain
from lakestate.protocol.metadata import CompletionStatus, NamedBytes
from lakestate.protocol.values import Epoch
from lakestate.spark import query as query_module
from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.query import PipelineQuery

DEADLINE_S = 60
ENDS = Ending.END_OF_STREAM


class Spark:
    """Gives a query its batches, one after the other, and then waits to be stopped."""

    def __init__(self) -> None:
        self.batches = 0
        self.launched: list[Launched] = []

    @property
    def writeStream(self) -> Any:
        return self

    def foreachBatch(self, on_batch: Callable[[Any, int], None]) -> Any:
        self._on_batch = on_batch
        return self

    def option(self, *_: str) -> Any:
        return self

    def trigger(self, **_: Any) -> Any:
        return self

    def start(self) -> Launched:
        self.launched.append(Launched(self._on_batch, self.batches if not self.launched else 0))
        return self.launched[-1]


class Launched:
    """One query of Spark's. It ends when it is stopped or when a batch fails."""

    def __init__(self, on_batch: Callable[[Any, int], None], batches: int) -> None:
        self._batches = batches
        self._on_batch = on_batch
        self._over = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        session = SimpleNamespace(conf=Conf())
        for number in range(self._batches):
            try:
                self._on_batch(SimpleNamespace(sparkSession=session), number)
            except RuntimeError:
                self._failed = True
                self._over.set()
                return

    def stop(self) -> None:
        self._over.set()
        self._thread.join(DEADLINE_S)

    def awaitTermination(self) -> None:
        self._over.wait()
        if self._failed:
            raise PySparkRuntimeError("FOREACH_BATCH_USER_FUNCTION_ERROR", {})


class Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def get(self, name: str, default: str = "of the user") -> str:
        return super().get(name, default)


def stored(epoch: int, *files: str) -> Any:
    """The manifest of an epoch, as far as a query looks at it."""
    content = {"metadata": json.dumps({"id": str(uuid4())}).encode(), **dict.fromkeys(files, b"v1\n{}\n7")}
    return SimpleNamespace(
        job_id="job",
        epoch=Epoch(epoch),
        status=CompletionStatus.COMPLETE,
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
        self._outcomes = list(outcomes)
        self.epochs: list[tuple[int, Ending]] = []
        self.stops = 0

    def refresh(self) -> Any:
        self.parent = self._later
        return self.parent

    def next_epoch(self) -> Epoch:
        return Epoch(len(self.epochs) + 1)

    def run_epoch(self, epoch: Epoch, run: Any, ending: Ending) -> Any:
        self.epochs.append((int(epoch), ending))
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, EpochFinished) and self.parent is not None:
            self.parent = SimpleNamespace(**vars(self.parent) | {"status": _status(ending)})
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def stop(self) -> None:
        self.stops += 1


def _status(ending: Ending) -> CompletionStatus:
    return CompletionStatus.FINAL if ending is ENDS else CompletionStatus.COMPLETE


DONE = EpochFinished(SimpleNamespace(epoch=1))  # type: ignore[arg-type]
AGAIN = StartAgain(SimpleNamespace())  # type: ignore[arg-type]


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    spark = Spark()
    monkeypatch.setattr(query_module, "combine_sources", lambda graph: spark)
    return spark


@pytest.fixture
def session() -> Any:
    """The user's."""
    return SimpleNamespace(conf=Conf())


@pytest.fixture
def query(spark: Spark, session: Any, tmp_path: Path) -> Callable[..., PipelineQuery]:
    def start(driver: Driver, batches: int = 0, listeners: Any = ()) -> PipelineQuery:
        spark.batches = batches
        pipeline: Any = SimpleNamespace(
            graph=SimpleNamespace(sources=(), sinks=()), schemas=SimpleNamespace(session=session)
        )
        given: Any = driver
        return PipelineQuery(pipeline, given, SparkDirectory(tmp_path, "job"), {}, listeners)

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

    def test_a_job_that_was_drained_before_it_read_anything_needs_another_name(self, query: Start) -> None:
        running = query(Driver(AlreadyPublished(), parent=stored(1)), batches=1)
        with pytest.raises(ls.IncompatibleStateError, match="start the job under another job id"):
            ends(running)


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
        query(Driver(DONE)).stop(drain=True)
        assert set(session.conf.values()) == {"of the user"}

    def test_the_folder_of_sparks_logs_goes_when_the_query_ends(self, query: Start, tmp_path: Path) -> None:
        running = query(Driver())
        assert len(list(tmp_path.iterdir())) == 1
        running.stop()
        assert list(tmp_path.iterdir()) == []
