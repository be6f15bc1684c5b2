"""Publication of epochs over real stores: fences, overtaken drivers, lost answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.jobs.small_job import SmallJob, check_promises, restored, started_job
from tests.support.storage.store_faults import faults_on

from lakestate.codec import encode_manifest
from lakestate.coordinator.recover import recover_job
from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.coordinator.retention.tags import create_tag
from lakestate.errors import (
    ConflictError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.protocol.publication import Collected, Fenced, Published, Superseded
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation
from lakestate.storage import ObjectStore
from lakestate.testing.faults import Fault, FaultyStore, Hook, Operation

KEEP_ONE = RetentionPolicy(1)


RECORD = "job/epochs/0000000001.json"


class TestPublishing:
    def test_a_published_epoch_is_found_committed_and_restored_by_the_next_driver(
        self, store: ObjectStore
    ) -> None:
        first = started_job(store, "a")
        first.run_to(3)
        found = SmallJob(store, "b").start()
        assert found is not None
        assert (found.manifest, found.permit) == (first.parent, None)
        assert restored(first.job, Epoch(3)) == [b"rows of 3 by a", b"rows of 2 by a", b"rows of 1 by a"]
        check_promises(store)

    def test_a_fenced_driver_publishes_nothing(self, store: ObjectStore) -> None:
        old = started_job(store, "old")
        old.run_to(1)
        manifest = old.write(Epoch(2))
        started_job(store, "new")
        with pytest.raises(FencedError, match="another driver has taken over"):
            old.publish(manifest)
        assert old.job.list_epochs() == [1]

    def test_an_epoch_that_a_lower_generation_published_just_before_stands(self, store: ObjectStore) -> None:
        old = started_job(store, "old")
        theirs = old.write(Epoch(1))
        new = SmallJob(store, "new")

        def take_over(operation: Operation, path: str) -> Fault:
            if (operation, path) == (Operation.CREATE, "job/epochs/0000000001.json"):
                new.start()
            return Fault.NONE

        slow = replace(old.job, store=FaultyStore(store, take_over))
        old.job = slow
        assert isinstance(old.publish(theirs), Published)
        outcome = new.run_epoch()
        assert isinstance(outcome, Superseded)
        assert outcome.record.generation == 1
        found = new.start()
        assert found is not None
        assert found.manifest == theirs
        check_promises(store)

    def test_a_record_by_a_higher_generation_fences(self, store: ObjectStore) -> None:
        old = started_job(store, "old")
        manifest = old.write(Epoch(1))

        def overtake(operation: Operation, path: str) -> Fault:
            if (operation, path) == (Operation.CREATE, "job/epochs/0000000001.json"):
                started_job(store, "new").run_to(1)
            return Fault.NONE

        old.job = replace(old.job, store=FaultyStore(store, overtake))
        assert old.publish(manifest) == Fenced(Generation(2))
        check_promises(store)

    def test_a_driver_that_slept_through_retention_cannot_bring_its_epoch_back(
        self, store: ObjectStore
    ) -> None:
        old = started_job(store, "old")
        manifest = old.write(Epoch(1))

        def an_hour_passes(operation: Operation, path: str) -> Fault:
            if (operation, path) == (Operation.CREATE, "job/epochs/0000000001.json"):
                new = started_job(store, "new")
                new.run_to(4)
                retain_epochs(new.job, new.claim, KEEP_ONE, new.ambient)
            return Fault.NONE

        old.job = replace(old.job, store=FaultyStore(store, an_hour_passes))
        assert old.publish(manifest) == Collected(Epoch(4))
        last = SmallJob(store, "last")
        found = last.start()
        assert found is not None
        assert found.record.epoch == 4
        with pytest.raises(NotFoundError, match="epoch 1 cannot be opened"):
            open_epoch(last.job, Epoch(1))
        with pytest.raises(NotFoundError, match="epoch 1 can no longer be tagged"):
            create_tag(last.job, "void", Epoch(1), last.ambient)
        retain_epochs(last.job, last.claim, KEEP_ONE, last.ambient)
        assert last.job.list_epochs() == [4]
        check_promises(store)

    def test_a_second_attempt_never_overwrites_the_objects_of_the_first(self, store: ObjectStore) -> None:
        old = started_job(store, "old")
        first = old.write(Epoch(1))
        old.job.create_new(lambda a: old.job.paths.manifest(Epoch(1), a), encode_manifest(first), "x")
        before = {info.path: store.get(info.path).data for info in store.list("job/checkpoints/")}
        new = started_job(store, "new")
        new.run_to(1)
        after = {info.path: store.get(info.path).data for info in store.list("job/checkpoints/")}
        assert {path: after[path] for path in before} == before
        check_promises(store)

    def test_a_manifest_of_another_generation_is_refused(self, store: ObjectStore) -> None:
        driver = started_job(store)
        manifest = replace(driver.write(Epoch(1)), generation=Generation(9))
        with pytest.raises(InvalidInputError, match="found 9; expected 1"):
            driver.publish(manifest)


class TestLostAnswers:
    def publishing(self, store: ObjectStore, hook: Hook) -> Callable[[], object]:
        driver = started_job(store)
        manifest = driver.write(Epoch(1))
        driver.job = replace(driver.job, store=FaultyStore(store, hook))
        return lambda: driver.publish(manifest)

    @pytest.mark.parametrize(
        "faults",
        [(Fault.ANSWER_LOST,), (Fault.REQUEST_LOST,), (Fault.REQUEST_LOST, Fault.ANSWER_LOST)],
    )
    def test_the_creation_of_the_record_is_looked_up_not_guessed(
        self, store: ObjectStore, faults: tuple[Fault, ...]
    ) -> None:
        publish = self.publishing(store, faults_on(Operation.CREATE, RECORD, *faults))
        assert isinstance(publish(), Published)

    @pytest.mark.parametrize(
        "faults",
        [
            (Fault.ANSWER_LOST, Fault.UNAVAILABLE),
            (Fault.REQUEST_LOST, Fault.UNAVAILABLE),
            (Fault.ANSWER_LOST, Fault.ANSWER_LOST, Fault.ANSWER_LOST),
            (Fault.REQUEST_LOST, Fault.REQUEST_LOST, Fault.REQUEST_LOST),
        ],
    )
    def test_an_epoch_that_may_be_published_is_never_called_unpublished(
        self, store: ObjectStore, faults: tuple[Fault, ...]
    ) -> None:
        publish = self.publishing(store, faults_on(Operation.CREATE, RECORD, *faults))
        with pytest.raises(OutcomeUnknownError, match="epoch 1 may or may not be published"):
            publish()

    def test_a_store_that_goes_away_after_the_record_leaves_the_outcome_unknown(
        self, store: ObjectStore
    ) -> None:
        publish = self.publishing(store, faults_on(Operation.GET, "job/retention.json", Fault.UNAVAILABLE))
        with pytest.raises(OutcomeUnknownError, match="epoch 1 may or may not be published"):
            publish()

    def test_a_store_that_is_away_before_the_record_leaves_nothing_published(
        self, store: ObjectStore
    ) -> None:
        publish = self.publishing(store, faults_on(Operation.CREATE, RECORD, Fault.UNAVAILABLE))
        with pytest.raises(StorageUnavailableError):
            publish()
        assert JobObjects(store, "job").list_epochs() == []

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_manifest_whose_answer_is_lost_goes_under_another_name(
        self, store: ObjectStore, fault: Fault
    ) -> None:
        publish = self.publishing(store, faults_on(Operation.CREATE, "job/checkpoints/1/manifest.pb", fault))
        outcome = publish()
        assert isinstance(outcome, Published)
        assert outcome.permit.manifest.path == "checkpoints/1/manifest.a-5.pb"
        restored(JobObjects(store, "job"), Epoch(1))

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_lost_commit_marker_costs_one_more_commit(self, store: ObjectStore, fault: Fault) -> None:
        marker = faults_on(Operation.CREATE, "job/checkpoints/1/committed.json", fault)
        driver = started_job(FaultyStore(store, marker))
        driver.run_to(1)
        found = recover_job(driver.job, driver.claim)
        assert found is not None
        assert (found.permit is not None) == (fault is Fault.REQUEST_LOST)

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_boundary_whose_answer_is_lost_is_looked_up(self, store: ObjectStore, fault: Fault) -> None:
        driver = started_job(store)
        driver.run_to(4)
        driver.job = replace(
            driver.job, store=FaultyStore(store, faults_on(Operation.CREATE, "job/retention.json", fault))
        )
        if fault is Fault.REQUEST_LOST:
            with pytest.raises(ConflictError, match="nothing was deleted"):
                retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
            assert driver.job.list_epochs() == [1, 2, 3, 4]
        else:
            retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
            assert driver.job.list_epochs() == [4]
