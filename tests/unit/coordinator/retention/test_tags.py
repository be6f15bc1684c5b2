"""Tags: an epoch stays readable under its name after retention went past it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.support.jobs.small_job import (
    SmallJob,
    check_promises,
    fresh_memory,
    restored,
    started_job,
)
from tests.support.jobs.table_job import TableJob
from tests.support.storage.store_faults import before_call

import lakestate as ls
from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.coordinator.retention.tags import create_tag, delete_tag
from lakestate.errors import (
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch
from lakestate.storage import ObjectStore
from lakestate.testing.faults import Fault, FaultyStore, Operation, faults_at
from lakestate.testing.stepping import SteppingAmbient

KEEP_ONE = RetentionPolicy(1)
VALUES = ls.GlobalKeyedTable("values", key=str, value=int)


@pytest.fixture
def job() -> Iterator[TableJob]:
    """Five epochs; the value of each is its number."""
    made = TableJob([VALUES])
    for number in range(1, 6):
        made.managers[0].global_keyed("values").insert("epoch", number)
        made.checkpoint()
    yield made
    made.close()


def value_at(job: TableJob, epoch: int) -> int | None:
    return job.opened(ls.Epoch(epoch))[0].global_keyed("values").get("epoch")


def test_a_tagged_epoch_is_kept_until_the_tag_is_given_up(job: TableJob) -> None:
    tag = job.backend.create_tag("job", "before-sale", 2)
    assert (tag.name, tag.epoch) == ("before-sale", 2)
    assert job.backend.tags("job") == (tag,)
    job.retain(keep=1)
    assert [value_at(job, epoch) for epoch in (2, 5)] == [2, 5]
    with pytest.raises(NotFoundError, match="epoch 3"):
        value_at(job, 3)
    job.backend.delete_tag("job", "before-sale")
    job.backend.delete_tag("job", "before-sale")
    job.backend.cleanup_checkpoint("job", 5)
    assert job.backend.tags("job") == ()
    with pytest.raises(NotFoundError, match="epoch 2"):
        value_at(job, 2)


def test_without_an_epoch_the_newest_is_tagged(job: TableJob) -> None:
    assert job.backend.create_tag("job", "now").epoch == 5


def test_a_name_is_taken_once_and_a_lost_epoch_not_at_all(job: TableJob) -> None:
    job.backend.create_tag("job", "one", 4)
    with pytest.raises(ConflictError, match=r"the tag exists already: .*tags/one\.json; found epoch 4"):
        job.backend.create_tag("job", "one", 5)
    job.retain(keep=2)
    with pytest.raises(NotFoundError, match="epoch 1"):
        job.backend.create_tag("job", "late", 1)
    assert [tag.name for tag in job.backend.tags("job")] == ["one"]


def test_tagging_the_same_epoch_again_answers_with_the_tag_that_is_there(job: TableJob) -> None:
    tag = job.backend.create_tag("job", "one", 2)
    assert job.backend.create_tag("job", "one", 2) == tag
    job.retain(keep=1)
    assert job.backend.create_tag("job", "one", 2) == tag
    assert job.backend.tags("job") == (tag,)
    assert value_at(job, 2) == 2


def test_a_tag_whose_answer_was_lost_can_be_created_again(job: TableJob) -> None:
    objects = job.backend.objects("job")
    losing = FaultyStore(objects.store, faults_at({1: Fault.ANSWER_LOST}))
    with pytest.raises(OutcomeUnknownError):
        create_tag(replace(objects, store=losing), "golden", Epoch(2), job.backend.ambient)
    assert job.backend.tags("job") == (job.backend.create_tag("job", "golden", 2),)


def test_a_tag_of_an_epoch_that_is_collected_is_not_the_answer(job: TableJob) -> None:
    objects = job.backend.objects("job")
    tag = job.backend.create_tag("job", "one", 2)
    gone = [objects.store_path(objects.paths.tag("one"))]
    data = objects.store.get(gone[0]).data
    objects.store.delete_many(gone)
    job.retain(keep=1)
    objects.store.put(gone[0], data)
    with pytest.raises(NotFoundError, match="epoch 2 is not published"):
        job.backend.create_tag("job", "one", 2)
    assert job.backend.tags("job") == (tag,)


def test_a_tag_that_comes_too_late_takes_back_only_itself(job: TableJob) -> None:
    """Meanwhile it was deleted by hand, and its name given to another epoch."""
    objects = job.backend.objects("job")

    def meanwhile(operation: Operation, path: str) -> Fault:
        if operation is Operation.GET and path.endswith("retention.json"):
            job.retain(keep=2)
            job.backend.delete_tag("job", "late")
            job.backend.create_tag("job", "late", 5)
        return Fault.NONE

    store = FaultyStore(objects.store, meanwhile)
    with pytest.raises(NotFoundError, match="epoch 1 can no longer be tagged"):
        create_tag(replace(objects, store=store), "late", Epoch(1), job.backend.ambient)
    assert [(tag.name, tag.epoch) for tag in job.backend.tags("job")] == [("late", 5)]


class TestTagging:
    def test_a_tag_keeps_its_epoch_until_it_is_deleted(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(5)
        create_tag(driver.job, "release-1", Epoch(2), driver.ambient)
        retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        assert driver.job.list_epochs() == [2, 5]
        assert restored(driver.job, Epoch(2)) == [b"rows of 2 by a", b"rows of 1 by a"]
        delete_tag(driver.job, "release-1")
        retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        assert driver.job.list_epochs() == [5]
        check_promises(store)

    def test_an_epoch_that_is_not_published_cannot_be_tagged(self, store: ObjectStore) -> None:
        driver = started_job(store)
        with pytest.raises(NotFoundError, match="epoch 9 is not published"):
            create_tag(driver.job, "t", Epoch(9), driver.ambient)
        assert driver.job.read_tags() == ()

    def test_a_tag_is_never_moved(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(2)
        tag = create_tag(driver.job, "t", Epoch(1), driver.ambient)
        with pytest.raises(ConflictError, match="found epoch 1; choose another name"):
            create_tag(driver.job, "t", Epoch(2), driver.ambient)
        assert driver.job.read_tags() == (tag,)

    def test_an_epoch_before_the_boundary_gets_no_second_tag(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(3)
        tag = create_tag(driver.job, "one", Epoch(1), driver.ambient)
        retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        with pytest.raises(NotFoundError, match="epoch 1 can no longer be tagged"):
            create_tag(driver.job, "two", Epoch(1), driver.ambient)
        assert driver.job.read_tags() == (tag,)

    def test_whenever_a_tag_is_created_during_retention_it_holds_or_is_refused(self) -> None:
        outcomes = [self.tag_during_retention(number) for number in range(self.retention_calls())]
        assert {*outcomes} == {"tagged", "refused"}
        assert outcomes == sorted(outcomes, reverse=True), "once the boundary has moved, it is too late"

    def test_whenever_retention_runs_during_tagging_the_tag_holds_or_is_refused(self) -> None:
        outcomes = [self.retain_during_tagging(number) for number in range(5)]
        assert {*outcomes} == {"tagged", "refused"}

    def retention_calls(self) -> int:
        driver = self.four_epochs()
        counting = FaultyStore(driver.store)
        retain_epochs(replace(driver.job, store=counting), driver.claim, KEEP_ONE, driver.ambient)
        return len(counting.calls)

    def four_epochs(self) -> SmallJob:
        driver = started_job(fresh_memory())
        driver.run_to(4)
        return driver

    def tag_during_retention(self, number: int) -> str:
        driver = self.four_epochs()

        def tag() -> None:
            with suppress(NotFoundError):
                create_tag(driver.job, "late", Epoch(2), SteppingAmbient("tagger"))

        store = FaultyStore(driver.store, before_call(number, tag))
        retain_epochs(replace(driver.job, store=store), driver.claim, KEEP_ONE, driver.ambient)
        return self.outcome(driver)

    def retain_during_tagging(self, number: int) -> str:
        driver = self.four_epochs()
        store = FaultyStore(
            driver.store,
            before_call(number, lambda: retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)),
        )
        with suppress(NotFoundError):
            create_tag(replace(driver.job, store=store), "late", Epoch(2), SteppingAmbient("tagger"))
        return self.outcome(driver)

    def outcome(self, driver: SmallJob) -> str:
        check_promises(driver.store)
        driver.run_to(6)
        retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        check_promises(driver.store)
        return "tagged" if driver.job.read_tags() else "refused"
