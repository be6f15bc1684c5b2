"""A fork begins with an epoch of another job, shares its objects, and neither can harm the other."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.jobs.forked_job import (
    MERGING,
    PARENT,
    TRIAL,
    add,
    fresh_backend,
    is_sound,
    objects_of,
    start,
    totals,
)
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError
from lakestate.protocol.metadata import ForkedFrom
from lakestate.protocol.paths import fork_tag
from lakestate.protocol.values import Epoch, ForkPoint, ObjectRef
from lakestate.repair import Fork, go_back, preview_fork, rebuild_fence
from lakestate.sinks.rolling import Roll
from lakestate.testing.chained_job import SINK


@pytest.fixture
def backend() -> ls.ParquetBackend:
    """A parent with three epochs."""
    made = fresh_backend()
    job = start(made)
    for keys in ("ab", "bc", "cd"):
        add(job, *keys)
    return made


def fork_names(backend: ls.ParquetBackend, job_id: str = PARENT) -> list[str]:
    return [tag.fork for tag in backend.tags(job_id) if tag.fork]


def test_a_fork_and_its_parent_continue_with_results_of_their_own(backend: ls.ParquetBackend) -> None:
    made = ls.fork(backend, PARENT, TRIAL)
    assert made == Fork(TRIAL, ForkPoint(PARENT, Epoch(3)), is_muted=True)
    assert totals(backend, TRIAL) == {"a": 1, "b": 2, "c": 2, "d": 1}
    parent, trial = start(backend), start(backend, TRIAL, muted=True)
    add(parent, "a")
    add(trial, "x", "b")
    assert totals(backend, PARENT) == {"a": 2, "b": 2, "c": 2, "d": 1}
    assert totals(backend, TRIAL) == {"a": 1, "b": 3, "c": 2, "d": 1, "x": 1}
    assert backend.load_checkpoint_metadata(TRIAL).forked_from == ForkedFrom(PARENT, Epoch(3), True)
    assert is_sound(backend, PARENT)
    assert is_sound(backend, TRIAL)


def test_a_fork_copies_nothing(backend: ls.ParquetBackend) -> None:
    before = objects_of(backend, PARENT)
    ls.fork(backend, PARENT, TRIAL)
    assert objects_of(backend, TRIAL) == {
        f"{TRIAL}/generation.json",
        f"{TRIAL}/epochs/0000000003.json",
        f"{TRIAL}/checkpoints/3/manifest.pb",
        f"{TRIAL}/checkpoints/3/committed.json",
    }
    (tag,) = objects_of(backend, PARENT) - before
    assert tag.startswith(f"{PARENT}/tags/fork-")


@pytest.mark.parametrize("named", [3, "3", "newest", "sale", datetime(2100, 1, 1, tzinfo=UTC)])
def test_the_epoch_is_named_by_number_tag_time_or_as_the_newest(
    backend: ls.ParquetBackend, named: int | str | datetime
) -> None:
    backend.create_tag(PARENT, "sale", 3)
    assert preview_fork(backend, PARENT, TRIAL, named).parent == ForkPoint(PARENT, Epoch(3))
    assert ls.fork(backend, PARENT, TRIAL, named).parent == ForkPoint(PARENT, Epoch(3))


def test_an_epoch_that_only_a_tag_keeps_can_be_forked_and_the_tag_deleted(
    backend: ls.ParquetBackend,
) -> None:
    backend.create_tag(PARENT, "sale", 2)
    parent = start(backend)
    for _ in range(4):
        add(parent, "a")
    ls.fork(backend, PARENT, TRIAL, "sale")
    backend.delete_tag(PARENT, "sale")
    for _ in range(4):
        add(parent, "a")
    assert totals(backend, TRIAL) == {"a": 1, "b": 2, "c": 1}
    assert is_sound(backend, TRIAL)


def test_retention_and_merges_of_the_parent_spare_what_the_fork_needs(backend: ls.ParquetBackend) -> None:
    ls.fork(backend, PARENT, TRIAL, 2)
    parent = start(backend, settings=MERGING)
    for _ in range(8):
        add(parent, "a", "b", "c", "d")
    assert backend.objects(PARENT).list_epochs() == [2, 10, 11]
    assert totals(backend, TRIAL) == {"a": 1, "b": 2, "c": 1}
    assert is_sound(backend, PARENT)
    assert is_sound(backend, TRIAL)
    trial = start(backend, TRIAL)
    add(trial, "b")
    assert totals(backend, TRIAL) == {"a": 1, "b": 3, "c": 1}


def test_the_parent_is_released_when_no_epoch_of_the_fork_needs_it(backend: ls.ParquetBackend) -> None:
    ls.fork(backend, PARENT, TRIAL, 2)
    before = objects_of(backend, PARENT)
    trial = start(backend, TRIAL, settings=MERGING)
    backend.create_tag(TRIAL, "origin", 2)
    for _ in range(12):
        add(trial, "a", "b", "c", "d")
    # All data files of the newest epochs are merged ones of the fork, but its first epoch is tagged.
    assert fork_names(backend) == [TRIAL]
    assert objects_of(backend, PARENT) == before
    backend.delete_tag(TRIAL, "origin")
    for _ in range(2):
        add(trial, "a")
    assert fork_names(backend) == []
    parent = start(backend)
    for _ in range(3):
        add(parent, "z")
    assert backend.objects(PARENT).list_epochs() == [5, 6]
    assert totals(backend, TRIAL) == {"a": 15, "b": 14, "c": 13, "d": 12}
    assert is_sound(backend, PARENT)
    assert is_sound(backend, TRIAL)


def test_a_fork_of_a_fork_needs_both_and_keeps_both(backend: ls.ParquetBackend) -> None:
    ls.fork(backend, PARENT, TRIAL, 3)
    trial = start(backend, TRIAL, settings=MERGING)
    add(trial, "e")
    assert ls.fork(backend, TRIAL, "second").parent == ForkPoint(TRIAL, Epoch(4))
    parent = start(backend, settings=MERGING)
    for _ in range(8):
        add(trial, "a", "b", "c", "d", "e")
        add(parent, "a", "b", "c", "d", "e")
    assert (fork_names(backend), fork_names(backend, TRIAL)) == ([TRIAL], ["second"])
    assert totals(backend, "second") == {"a": 1, "b": 2, "c": 2, "d": 1, "e": 1}
    second = start(backend, "second", settings=MERGING)
    for _ in range(8):
        add(second, "a", "b", "c", "d", "e")
    assert fork_names(backend, TRIAL) == []
    for _ in range(3):
        add(trial, "a")
    assert fork_names(backend) == []
    for job_id in (PARENT, TRIAL, "second"):
        assert is_sound(backend, job_id)
    assert totals(backend, "second") == {"a": 9, "b": 10, "c": 10, "d": 9, "e": 9}


def test_parent_and_fork_go_back_on_their_own(backend: ls.ParquetBackend) -> None:
    ls.fork(backend, PARENT, TRIAL, 3)
    trial = start(backend, TRIAL)
    add(trial, "z")
    go_back(backend, TRIAL, 3)
    assert totals(backend, TRIAL) == {"a": 1, "b": 2, "c": 2, "d": 1}
    go_back(backend, PARENT, 2)
    for _ in range(4):
        add(start(backend), "a")
    assert totals(backend, PARENT) == {"a": 5, "b": 2, "c": 1}
    assert totals(backend, TRIAL) == {"a": 1, "b": 2, "c": 2, "d": 1}
    assert is_sound(backend, TRIAL)


def test_a_fork_restores_at_any_parallelism() -> None:
    made = fresh_backend()
    job = start(made, parallelism=3)
    add(job, *"abcdefgh")
    ls.fork(made, PARENT, TRIAL)
    trial = start(made, TRIAL, parallelism=2)
    add(trial, "a", "h")
    assert totals(made, TRIAL) == dict.fromkeys("bcdefg", 1) | {"a": 2, "h": 2}
    assert is_sound(made, TRIAL)


def test_entries_of_the_parent_count_less_than_later_ones_of_the_fork() -> None:
    """A replicated table compares numbers of epochs, so those of the fork continue."""
    job = TableJob([ls.GlobalKeyedTable("values", key=str, value=int)])
    for number in (1, 2, 3):
        job.managers[0].global_keyed("values").insert("k", number)
        job.checkpoint()
    ls.fork(job.backend, "job", TRIAL, 2)
    task = ls.TaskInfo(TRIAL, "op")
    tables = ls.TableManager.load(task, job.tables, job.backend, Epoch(2))
    assert tables.global_keyed("values").get("k") == 2
    tables.global_keyed("values").insert("k", 9)
    done = tables.checkpoint(3, 1, None, False)
    job.backend.write_checkpoint_metadata(TRIAL, 3, [done])
    again = ls.TableManager.load(task, job.tables, job.backend, Epoch(3))
    assert again.global_keyed("values").get("k") == 9
    job.close()


def rows_in(folder: Path) -> list[str]:
    found = [pq.read_table(path)["key"].to_pylist() for path in folder.glob("*.parquet")]
    return sorted(key for keys in found for key in keys)


def test_open_files_stay_with_the_parent_and_a_muted_fork_writes_nothing(tmp_path: Path) -> None:
    made = fresh_backend()
    sink = ls.ParquetSink(str(tmp_path / "out"), roll=Roll(interval="1 hour"))
    parent = start(made, sink=sink)
    add(parent, "a", "b")
    assert ls.fork(made, PARENT, TRIAL).left_out == (SINK,)
    before = {path.name for path in (tmp_path / "out").rglob("*")}
    trial = start(made, TRIAL, sink=sink, muted=True)
    add(trial, "t")
    assert {path.name for path in (tmp_path / "out").rglob("*")} == before
    assert made.load_checkpoint_metadata(TRIAL).sinks == ()
    assert rows_in(tmp_path / "out") == []
    add(start(made, sink=ls.ParquetSink(str(tmp_path / "out"), roll=Roll(bytes=1))), "a", "b")
    assert rows_in(tmp_path / "out") == ["a", "a", "b", "b"]
    assert totals(made, TRIAL) == {"a": 1, "b": 1, "t": 1}
    assert ls.verify(made, PARENT, sinks={SINK: sink}).is_clean


def test_a_fork_that_was_asked_to_write_writes_its_own_rows_only(tmp_path: Path) -> None:
    made = fresh_backend()
    out = ls.ParquetSink(str(tmp_path / "out"), roll=Roll(bytes=1))
    parent = start(made, sink=out)
    add(parent, "a", "b")
    ls.fork(made, PARENT, TRIAL)
    own = ls.ParquetSink(str(tmp_path / "own"), roll=Roll(bytes=1))
    add(start(made, TRIAL, sink=own, muted=True), "m")
    add(start(made, TRIAL, sink=own), "t")
    assert rows_in(tmp_path / "own") == ["t"]
    assert rows_in(tmp_path / "out") == ["a", "b"]
    assert not made.load_checkpoint_metadata(TRIAL).is_muted
    with pytest.raises(ConflictError, match="cannot be muted"):
        start(made, TRIAL, sink=own, muted=True)
    assert ls.verify(made, TRIAL, sinks={SINK: own}).is_clean


def test_what_exists_is_not_overwritten(backend: ls.ParquetBackend) -> None:
    start(backend, "other")
    with pytest.raises(ConflictError, match=r"job other exists already: .*; found another job"):
        ls.fork(backend, PARENT, "other")
    with pytest.raises(InvalidInputError, match="cannot be forked into itself"):
        ls.fork(backend, PARENT, PARENT)
    ls.fork(backend, PARENT, TRIAL, 2)
    with pytest.raises(ConflictError, match="found a fork of totals@2"):
        ls.fork(backend, PARENT, TRIAL, 3)
    with pytest.raises(ConflictError, match="the fork exists, and is muted"):
        ls.fork(backend, PARENT, TRIAL, muted=False)
    with pytest.raises(NotFoundError, match="no operator to drop: nobody"):
        ls.fork(backend, PARENT, "third", drop=["nobody"])
    with pytest.raises(NotFoundError, match="epoch 9 cannot be opened"):
        ls.fork(backend, PARENT, "third", 9)
    assert objects_of(backend, "third") == set()


def test_repeating_a_fork_returns_the_same(backend: ls.ParquetBackend) -> None:
    made = ls.fork(backend, PARENT, TRIAL)
    before = objects_of(backend, TRIAL)
    add(start(backend), "a")
    assert ls.fork(backend, PARENT, TRIAL) == made
    assert (objects_of(backend, TRIAL), fork_names(backend)) == (before, [TRIAL])


def test_the_tag_of_a_fork_cannot_be_deleted_while_a_job_needs_it(backend: ls.ParquetBackend) -> None:
    ls.fork(backend, PARENT, TRIAL)
    ls.fork(backend, TRIAL, "second")
    (tag,) = backend.tags(PARENT)
    with pytest.raises(ConflictError, match="found job second, job trial"):
        backend.delete_tag(PARENT, tag.name)
    store = backend.objects(TRIAL).store
    store.delete_many(objects_of(backend, TRIAL))
    with pytest.raises(ConflictError, match="found job second"):
        backend.delete_tag(PARENT, tag.name)
    store.delete_many(objects_of(backend, "second"))
    backend.delete_tag(PARENT, tag.name)
    assert backend.tags(PARENT) == ()


def test_a_parent_that_was_deleted_by_hand_is_named(backend: ls.ParquetBackend) -> None:
    ls.fork(backend, PARENT, TRIAL)
    backend.objects(PARENT).store.delete_many(objects_of(backend, PARENT))
    wanted = "an object of job totals is missing, from which job trial was forked: .*/totals/checkpoints/"
    with pytest.raises(CorruptionError, match=wanted):
        totals(backend, TRIAL)
    report = ls.verify(backend, TRIAL)
    assert report.restorable == ()
    assert all(f"/{PARENT}/checkpoints/" in each.object_name for each in report.findings)


@pytest.mark.parametrize("ending", [".parquet", ".metadata"])
def test_an_epoch_that_is_damaged_is_refused_before_anything_is_written(
    backend: ls.ParquetBackend, ending: str
) -> None:
    store, before = backend.objects(PARENT).store, objects_of(backend, PARENT)
    path = next(path for path in sorted(before) if "/3/operator-" in path and path.endswith(ending))
    whole = store.get(path).data
    store.put(path, whole[:-1])
    for make in (preview_fork, ls.fork):
        with pytest.raises(CorruptionError, match=rf"epoch 3 of job {PARENT} is damaged, in op.*{path}"):
            make(backend, PARENT, TRIAL)
    store.delete_many([path])
    with pytest.raises(CorruptionError, match=r"damaged, in operator op.*leave the operator out"):
        ls.fork(backend, PARENT, TRIAL)
    assert objects_of(backend, PARENT) == before - {path}
    assert objects_of(backend, TRIAL) == set()
    assert ls.fork(backend, PARENT, "older", 2).parent.epoch == 2
    assert ls.fork(backend, PARENT, "without", 3, drop=["operator"]).left_out == ("operator",)
    store.put(path, whole)
    assert ls.fork(backend, PARENT, TRIAL, 3).parent.epoch == 3


def test_operators_can_be_left_out(backend: ls.ParquetBackend) -> None:
    made = ls.fork(backend, PARENT, TRIAL, drop=["operator"])
    assert made.left_out == ("operator",)
    add(start(backend, TRIAL), "a")
    assert totals(backend, TRIAL) == {"a": 1}


def test_a_rebuilt_fence_still_says_where_the_fork_comes_from(backend: ls.ParquetBackend) -> None:
    ls.fork(backend, PARENT, TRIAL)
    job = backend.objects(TRIAL)
    before = job.read_fence()
    job.store.put(f"{TRIAL}/generation.json", b"{}")
    rebuild_fence(backend, TRIAL)
    after = job.read_fence()
    assert before is not None
    assert after is not None
    assert (after.record.forked_from, after.record.state_id) == ("totals@3", before.record.state_id)
    assert fork_tag(after.record.state_id) in [tag.name for tag in backend.tags(PARENT)]


def test_a_path_to_another_job_leads_only_to_what_a_fork_shares() -> None:
    for path in (
        "@totals/generation.json",
        "@totals/tags/x.json",
        "@../checkpoints/1/manifest.pb",
        "@/checkpoints/x",
    ):
        with pytest.raises(InvalidInputError):
            ObjectRef(path, 1, 0)
