"""The epoch protocol without an engine: what runs, what is published, what is committed, and when."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from tests.support.clocks import StandingClock

import lakestate as ls
from lakestate.coordinator.commit import Committer
from lakestate.coordinator.epoch_plan import (
    Ending,
    EpochPlan,
    EpochResult,
    SubtaskReport,
    decode_pre_commits,
)
from lakestate.coordinator.job_driver import (
    AlreadyPublished,
    DriverSettings,
    EpochFinished,
    JobDriver,
    StartAgain,
    SupersededAttemptError,
)
from lakestate.protocol.metadata import CompletionStatus, SourceOffsets
from lakestate.protocol.values import Epoch, Generation, TaskInfo
from lakestate.tables.manager import TableManager
from lakestate.testing.faults import Fault, FaultyStore, Operation

COUNTS = ls.GlobalKeyedTable("counts", key=str, value=int, two_phase_commit=True)
PARALLELISM = 2


class Inline(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Engine:
    """Runs two subtasks of one operator, which count their epochs, and remembers its plans."""

    def __init__(
        self, backend: ls.ParquetBackend, watermarks: Mapping[str, int | None] | None = None
    ) -> None:
        self.backend = backend
        self.plans: list[EpochPlan] = []
        self.watermarks = dict(watermarks or {})
        self.commit_data: dict[int, bytes] = {}

    def __call__(self, plan: EpochPlan) -> EpochResult:
        self.plans.append(plan)
        reports = tuple(self.subtask(plan, index) for index in range(PARALLELISM))
        sources = tuple(SourceOffsets(name, "{}", reached) for name, reached in self.watermarks.items())
        return EpochResult(reports, sources)

    def subtask(self, plan: EpochPlan, index: int) -> SubtaskReport:
        task = TaskInfo(plan.job_id, "op", index, PARALLELISM, plan.generation)
        manager = TableManager.load(task, [COUNTS], self.backend, plan.parent)
        manager.apply_compacted(plan.merges.get("op", {}).get(index, ()))
        view = manager.global_keyed("counts")
        view.insert(f"of {index}", (view.get(f"of {index}") or 0) + 1)
        if index in self.commit_data:
            view.set_commit_data(self.commit_data[index])
        done = manager.checkpoint(
            plan.epoch, plan.min_epoch, plan.watermark_us, plan.ending is Ending.END_OF_STREAM
        )
        return SubtaskReport("stage", index, (done,))


class Job:
    """Drivers of one job over one store in memory."""

    def __init__(self) -> None:
        self.url = f"memory://{uuid.uuid4().hex}"
        self.committed: list[tuple[int, list[bytes]]] = []

    def backend(self) -> ls.ParquetBackend:
        return ls.ParquetBackend(self.url)

    def driver(
        self,
        backend: ls.ParquetBackend | None = None,
        *,
        reopen: bool = False,
        commits: bool = True,
        **options: Any,
    ) -> JobDriver:
        committers: dict[str, Committer] = {"op": self.commit if commits else self.fail_to_commit}
        options.setdefault("upkeep_executor", Inline())
        driver = JobDriver(backend or self.backend(), "job", {"op": PARALLELISM}, committers, **options)
        driver.start(reopen=reopen)
        return driver

    def fail_to_commit(self, permit: Any, pre_commit: Any) -> None:
        raise ls.StorageUnavailableError("the output is not reachable")

    def commit(self, permit: Any, pre_commit: Any) -> None:
        self.committed.append((int(permit.epoch), decode_pre_commits(pre_commit.data, "here")))

    def counts(self) -> dict[str, int]:
        backend = self.backend()
        newest = backend.load_checkpoint_metadata("job").epoch
        manager = TableManager.load(TaskInfo("job", "op"), [COUNTS], backend, newest)
        return dict(manager.global_keyed("counts").items())


@pytest.fixture
def job() -> Job:
    return Job()


def run(driver: JobDriver, engine: Engine, count: int = 1) -> None:
    for _ in range(count):
        assert isinstance(driver.run_epoch(driver.next_epoch(), engine), EpochFinished)


class TestEpochs:
    def test_epochs_follow_each_other_and_a_new_driver_continues(self, job: Job) -> None:
        run(job.driver(), Engine(job.backend()), 2)
        second = job.driver()
        engine = Engine(job.backend())
        run(second, engine)
        assert job.counts() == {"of 0": 3, "of 1": 3}
        assert second.parent is not None
        assert (second.parent.epoch, second.parent.parent, second.parent.generation) == (3, 2, 2)
        assert [(plan.epoch, plan.generation) for plan in engine.plans] == [(3, 2)]

    def test_an_epoch_that_is_published_is_not_run_again(self, job: Job) -> None:
        driver, engine = job.driver(), Engine(job.backend())
        run(driver, engine, 2)
        assert driver.run_epoch(Epoch(1), engine) == AlreadyPublished()
        assert driver.run_epoch(Epoch(2), engine) == AlreadyPublished()
        assert len(engine.plans) == 2

    def test_an_epoch_is_never_skipped(self, job: Job) -> None:
        with pytest.raises(ls.InvalidInputError, match="found epoch 3; expected epoch 1"):
            job.driver().run_epoch(Epoch(3), Engine(job.backend()))

    def test_the_last_epoch_of_a_drained_job_is_final(self, job: Job) -> None:
        driver, engine = job.driver(), Engine(job.backend())
        driver.run_epoch(Epoch(1), engine, Ending.END_OF_STREAM)
        assert driver.parent is not None
        assert driver.parent.status is CompletionStatus.FINAL
        assert engine.plans[0].ending is Ending.END_OF_STREAM

    def test_a_finished_job_is_refused_until_it_is_reopened(self, job: Job) -> None:
        driver, engine = job.driver(), Engine(job.backend())
        driver.run_epoch(Epoch(1), engine, Ending.END_OF_STREAM)
        with pytest.raises(ls.IncompatibleStateError, match="the stream of this job has ended") as refused:
            driver.run_epoch(Epoch(2), engine)
        assert refused.value.object_name == "job job"
        assert refused.value.found == "epoch 1, in which operators were closed"
        with pytest.raises(ls.IncompatibleStateError, match="start with reopen=True"):
            job.driver()
        assert len(engine.plans) == 1
        reopened = job.driver(reopen=True)
        run(reopened, engine)
        assert reopened.parent is not None
        assert (reopened.parent.epoch, reopened.parent.status) == (2, CompletionStatus.COMPLETE)
        assert job.driver().parent == reopened.parent

    def test_the_commit_of_a_finished_job_is_completed_before_it_is_refused(self, job: Job) -> None:
        driver, engine = job.driver(commits=False), Engine(job.backend())
        engine.commit_data = {0: b"part"}
        with pytest.raises(ls.StorageUnavailableError):
            driver.run_epoch(Epoch(1), engine, Ending.END_OF_STREAM)
        with pytest.raises(ls.IncompatibleStateError, match="the stream of this job has ended"):
            job.driver()
        assert job.committed == [(1, [b"part"])]

    def test_an_epoch_that_only_finishes_files_is_not_final(self, job: Job) -> None:
        driver, engine = job.driver(), Engine(job.backend())
        driver.run_epoch(Epoch(1), engine, Ending.FINISH_FILES)
        assert driver.parent is not None
        assert driver.parent.status is CompletionStatus.COMPLETE

    def test_subtasks_are_not_shipped_what_only_the_driver_needs(self, job: Job) -> None:
        driver, engine = job.driver(), Engine(job.backend(), {"a": 1})
        run(driver, engine)
        shipped = driver.plan().for_subtasks().parent
        assert shipped is not None
        assert (shipped.sources, shipped.sinks, shipped.engine_files) == ((), (), ())
        assert shipped.operators == driver.parent.operators if driver.parent else False


class TestAttempts:
    def test_a_superseded_attempt_discards_the_epoch_and_runs_it_again(self, job: Job) -> None:
        driver, engine = job.driver(), Engine(job.backend())
        refused = iter([True, True])

        def superseded(plan: EpochPlan) -> EpochResult:
            result = engine(plan)
            if next(refused, False):
                raise SupersededAttemptError("an attempt was superseded")
            return result

        run(driver, superseded)  # type: ignore[arg-type]
        assert len(engine.plans) == 3
        assert job.counts() == {"of 0": 1, "of 1": 1}

    @pytest.mark.parametrize("wrong", ["missing", "twice", "nothing"])
    def test_an_epoch_that_never_completes_is_given_up_unpublished(self, job: Job, wrong: str) -> None:
        driver, engine = job.driver(), Engine(job.backend())

        def incomplete(plan: EpochPlan) -> EpochResult:
            reports = engine(plan).reports
            chosen = {"missing": reports[:1], "twice": (*reports, reports[0]), "nothing": ()}[wrong]
            return EpochResult(chosen)

        with pytest.raises(SupersededAttemptError, match="not complete"):
            driver.run_epoch(Epoch(1), incomplete)
        assert len(engine.plans) == 3
        assert job.backend().objects("job").list_epochs() == []


class TestSinks:
    def test_a_sink_is_committed_once_with_what_all_its_subtasks_finished(self, job: Job) -> None:
        driver, engine = job.driver(), Engine(job.backend())
        engine.commit_data = {1: b"one", 0: b"zero"}
        run(driver, engine)
        engine.commit_data = {}
        run(driver, engine)
        assert job.committed == [(1, [b"zero", b"one"])]

    def test_an_interrupted_commit_is_finished_by_the_next_driver_before_anything_else(
        self, job: Job
    ) -> None:
        first, engine = job.driver(), Engine(job.backend())
        engine.commit_data = {0: b"zero"}
        commit, job.commit = job.commit, None  # type: ignore[method-assign, assignment]
        first._committers = {"op": lambda permit, sink: (_ for _ in ()).throw(OSError("no power"))}
        with pytest.raises(OSError, match="no power"):
            first.run_epoch(Epoch(1), engine)
        job.commit = commit  # type: ignore[method-assign]
        second = job.driver()
        assert job.committed == [(1, [b"zero"])]
        assert second.run_epoch(Epoch(1), engine) == AlreadyPublished()


class TestOtherDrivers:
    def test_a_fenced_driver_stops_and_publishes_nothing(self, job: Job) -> None:
        old, engine = job.driver(), Engine(job.backend())
        run(old, engine)
        job.driver()
        with pytest.raises(ls.FencedError, match="another driver has taken over"):
            old.run_epoch(Epoch(2), engine)
        assert job.backend().objects("job").list_epochs() == [1]

    def test_an_epoch_of_a_lower_generation_stands_and_is_gone_on_from(self, job: Job) -> None:
        backend = job.backend()
        old, new = job.driver(backend), []

        def take_over(operation: Operation, path: str) -> Fault:
            if operation is Operation.CREATE and path.endswith("epochs/0000000001.json") and not new:
                new.append(job.driver())
            return Fault.NONE

        slow = job.backend()
        slow.__dict__["_store"] = FaultyStore(backend.objects("job").store, take_over)
        old._job = slow.objects("job")
        with pytest.raises(ls.FencedError):
            old.run_epoch(Epoch(1), Engine(job.backend(), {"a": 7}))
        outcome = new[0].run_epoch(Epoch(1), Engine(job.backend()))
        assert isinstance(outcome, StartAgain)
        assert (outcome.manifest.generation, outcome.manifest.sources[0].watermark_us) == (1, 7)
        run(new[0], Engine(job.backend()))
        assert job.counts() == {"of 0": 2, "of 1": 2}

    def test_an_epoch_of_a_fenced_driver_is_found_by_looking_again(self, job: Job) -> None:
        newer: list[JobDriver] = []

        def take_over(operation: Operation, path: str) -> Fault:
            if operation is Operation.CREATE and path.endswith("epochs/0000000001.json") and not newer:
                newer.append(job.driver())
                assert newer[0].refresh() is None
            return Fault.NONE

        slow = job.backend()
        slow.__dict__["_store"] = FaultyStore(slow.objects("job").store, take_over)
        older = job.driver(slow)
        with pytest.raises(ls.FencedError):
            older.run_epoch(Epoch(1), Engine(job.backend()))
        found = newer[0].refresh()
        assert found is not None
        assert (found.epoch, found.generation, newer[0].next_epoch()) == (1, 1, 2)
        with pytest.raises(ls.FencedError):
            older.refresh()

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_lost_answer_is_looked_into_and_the_epoch_is_committed_once(
        self, job: Job, fault: Fault
    ) -> None:
        backend = job.backend()
        lost = iter([fault])

        def lose(operation: Operation, path: str) -> Fault:
            is_record = operation is Operation.CREATE and path.endswith("epochs/0000000001.json")
            return next(lost, Fault.NONE) if is_record else Fault.NONE

        backend.__dict__["_store"] = FaultyStore(backend.objects("job").store, lose)
        engine = Engine(job.backend())
        engine.commit_data = {0: b"zero"}
        run(job.driver(backend), engine)
        assert job.committed == [(1, [b"zero"])]

    def test_an_answer_that_is_lost_with_the_store_leaves_the_outcome_unknown(self, job: Job) -> None:
        backend, is_away = job.backend(), False

        def away(operation: Operation, path: str) -> Fault:
            nonlocal is_away
            if is_away:
                return Fault.UNAVAILABLE
            is_away = operation is Operation.CREATE and path.endswith("epochs/0000000001.json")
            return Fault.ANSWER_LOST if is_away else Fault.NONE

        backend.__dict__["_store"] = FaultyStore(backend.objects("job").store, away)
        driver = job.driver(backend)
        with pytest.raises(ls.OutcomeUnknownError, match="may or may not be published"):
            driver.run_epoch(Epoch(1), Engine(job.backend()))
        assert job.driver().parent is not None

    def test_what_a_fenced_driver_misses_is_reported_as_fencing(self, job: Job) -> None:
        older = job.driver()
        job.driver()

        def gone(plan: EpochPlan) -> EpochResult:
            raise ls.NotFoundError("the successor has collected it", object_name="a file")

        with pytest.raises(ls.FencedError, match="another driver has taken over") as raised:
            older.run_epoch(Epoch(1), gone)
        assert isinstance(raised.value.__context__, ls.NotFoundError)


class TestWatermarks:
    def test_an_epoch_sees_the_least_watermark_that_the_one_before_left(self, job: Job) -> None:
        driver = job.driver(timed_sources=["a", "b"])
        engine = Engine(job.backend(), {"a": 70, "b": None, "untimed": None})
        run(driver, engine)
        engine.watermarks = {"a": 90, "b": 50, "untimed": None}
        run(driver, engine)
        run(driver, engine)
        assert [plan.watermark_us for plan in engine.plans] == [None, None, 50]

    def test_it_never_goes_back_over_a_restart_with_a_new_source(self, job: Job) -> None:
        engine = Engine(job.backend(), {"a": 70})
        run(job.driver(timed_sources=["a"]), engine, 2)
        restarted = job.driver(timed_sources=["a", "new"])
        engine.watermarks = {"a": 80, "new": 10}
        run(restarted, engine, 2)
        assert [plan.watermark_us for plan in engine.plans] == [None, 70, 70, 70]


class TestTimeOfDay:
    def test_it_never_goes_back_whichever_host_has_the_job(self, job: Job) -> None:
        engine = Engine(job.backend())
        for hour in (12, 14, 13, 15):
            run(job.driver(ls.ParquetBackend(job.url, ambient=StandingClock(hour * 60))), engine)
        hours = [plan.processing_time_us // 3_600_000_000 for plan in engine.plans]
        assert hours == [12, 14, 14, 15]


class TestUpkeep:
    def test_merges_are_swapped_in_by_the_next_epoch_and_old_epochs_go(self, job: Job) -> None:
        settings = DriverSettings(ls.RetentionPolicy(2), ls.CompactionPolicy(files_min=2, files_max=4))
        driver, engine = job.driver(settings=settings), Engine(job.backend())
        run(driver, engine, 12)
        assert any(plan.merges for plan in engine.plans)
        assert job.counts() == {"of 0": 12, "of 1": 12}
        assert len(job.backend().objects("job").list_epochs()) <= 4

    def test_what_fails_beside_the_stream_is_reported_and_the_stream_continues(
        self, job: Job, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(manifest: object) -> None:
            raise ls.StorageUnavailableError("the sink's store is away")

        driver, engine = job.driver(clean_up=broken), Engine(job.backend())
        with caplog.at_level(logging.WARNING, "lakestate.upkeep"):
            run(driver, engine, 2)
            done = driver.run_epoch(driver.next_epoch(), engine)
            driver.stop()
        assert (
            "clean-up of the sinks of job job failed and will be tried again: the sink's store" in caplog.text
        )
        assert isinstance(done, EpochFinished)
        assert done.progress.upkeep_failures == {"clean_up": 1}
        assert driver.claim.generation == Generation(1)
