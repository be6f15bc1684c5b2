"""Tags as users make them: an epoch stays readable under its name after retention went past it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.coordinator.tags import create_tag
from lakestate.errors import ConflictError, NotFoundError, OutcomeUnknownError
from lakestate.protocol.values import Epoch
from lakestate.testing.faults import Fault, FaultyStore, Operation, faults_at

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
    with pytest.raises(ConflictError, match=r"the tag exists: .*tags/one\.json; found epoch 4"):
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
    gone = [objects.full(objects.paths.tag("one"))]
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
