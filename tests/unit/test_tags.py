"""Tags as users make them: an epoch stays readable under its name after retention went past it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.table_job import TableJob

import lakestate as ls
from lakestate.errors import ConflictError, NotFoundError

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
