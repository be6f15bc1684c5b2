"""Many epochs: what publishing and retention cost, and what retention remembers.

Costs are counted in store calls, which do not depend on how busy the machine is.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import PARTIAL, TableJob

import lakestate as ls
from lakestate.coordinator import upkeep
from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.coordinator.retention.retain import read_references, retain_epochs
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy, RetentionRefused
from lakestate.protocol.values import Epoch
from lakestate.testing.faults import Fault, FaultyStore, Operation

KEYED = ls.KeyedTable("t", key="k string", value="n bigint")


class Counting:
    """A hook that counts the calls of a store."""

    def __init__(self) -> None:
        self.calls: Counter[Operation] = Counter()

    def __call__(self, operation: Operation, path: str) -> Fault:
        self.calls[operation] += 1
        return Fault.NONE


def counted(job: TableJob) -> tuple[Any, Counting]:
    hook = Counting()
    objects = job.backend.objects("job")
    return replace(objects, store=FaultyStore(objects.store, hook)), hook


def with_epochs(job: TableJob, count: int) -> TableJob:
    for number in range(count):
        job.managers[0].keyed("t").put(pa.table({"k": [f"key {number % 7}"], "n": [number]}))
        job.checkpoint()
    return job


class TestEpochs:
    def test_publishing_costs_the_same_however_many_epochs_are_retained(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 3)
        hook = Counting()
        job.backend.__dict__["_store"] = FaultyStore(job.backend.objects("job").store, hook)
        with_epochs(job, 20)
        assert hook.calls[Operation.LIST] == 0

    def test_retention_reads_the_metadata_of_an_epoch_once(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 20)
        objects, hook = counted(job)
        known = KnownReferences()
        claim = job.backend.claim("job")
        policy = RetentionPolicy(15)
        retain_epochs(objects, claim, policy, job.backend.ambient, None, known)
        assert hook.calls[Operation.GET] > 2 * 15
        hook.calls.clear()
        assert isinstance(
            retain_epochs(objects, claim, policy, job.backend.ambient, None, known), RetentionPlan
        )
        # The fence and the boundary; no metadata.
        assert hook.calls[Operation.GET] < 10

    def test_what_is_remembered_keeps_what_is_needed(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 12)
        objects = job.backend.objects("job")
        known = KnownReferences()
        epochs = objects.list_epochs()
        for boundary in (Epoch(2), Epoch(5), Epoch(5), Epoch(9)):
            retained = [epoch for epoch in epochs if epoch >= boundary or epoch == 1]
            found = known.of(retained, boundary, lambda epoch: read_references(objects, epoch))
            needed = {path for epoch in retained for path in read_references(objects, epoch)}  # type: ignore[union-attr]
            assert {path for paths in found.values() for path in paths} == needed  # type: ignore[union-attr]

    def test_damage_is_not_remembered_and_a_lost_epoch_makes_it_look_again(self) -> None:
        known = KnownReferences()
        asked: list[int] = []

        def read(epoch: Epoch) -> frozenset[str] | Damaged:
            asked.append(int(epoch))
            return Damaged("manifest", "gone") if epoch == 2 else frozenset({f"of {epoch}", "shared"})

        epochs = [Epoch(number) for number in (1, 2, 3)]
        assert known.of(epochs, Epoch(1), read)[Epoch(2)] == Damaged("manifest", "gone")
        assert asked == [1, 2, 3]
        known.of(epochs, Epoch(1), read)
        assert asked == [1, 2, 3, 2, 3]
        # Nobody refers to what epoch 3 shared with epoch 1 but epoch 1.
        found = known.of([Epoch(1)], Epoch(1), read)
        assert found[Epoch(1)] == {"of 1", "shared"}

    def test_an_epoch_that_heals_takes_nothing_from_newer_ones(self) -> None:
        known = KnownReferences()
        damaged = {2}

        def read(epoch: Epoch) -> frozenset[str] | Damaged:
            return Damaged("manifest", "gone") if epoch in damaged else frozenset({f"of {epoch}", "shared"})

        epochs = [Epoch(number) for number in (2, 3, 4)]
        known.of(epochs, Epoch(2), read)
        damaged.clear()
        known.of(
            [*epochs, Epoch(5)],
            Epoch(2),
            lambda epoch: read(epoch) - {"shared"} if epoch == 5 else read(epoch),
        )  # type: ignore[operator]
        found = known.of([Epoch(3), Epoch(4), Epoch(5)], Epoch(3), lambda epoch: frozenset({f"of {epoch}"}))
        assert found == {3: {"of 3"}, 4: {"of 4", "shared"}, 5: {"of 5"}}

    def test_a_boundary_that_was_refused_and_is_lower_again_takes_nothing_from_newer_ones(self) -> None:
        known = KnownReferences()
        needs = {2: {"old"}, 3: {"old", "shared"}, 4: {"shared"}, 5: {"new"}}

        def read(epoch: Epoch) -> frozenset[str]:
            return frozenset(needs[epoch])

        epochs = [Epoch(number) for number in needs]
        for boundary in (4, 2, 4):
            found = known.of([epoch for epoch in epochs if epoch >= boundary], Epoch(boundary), read)
        assert found == {4: {"shared"}, 5: {"new"}}

    def test_the_newest_epoch_is_read_whatever_is_remembered(self) -> None:
        known = KnownReferences()
        known.of([Epoch(1), Epoch(2)], Epoch(1), lambda epoch: frozenset({f"of {epoch}"}))
        found = known.of([Epoch(1), Epoch(2)], Epoch(1), lambda epoch: frozenset({f"of {epoch} again"}))
        assert found == {1: {"of 1"}, 2: {"of 2", "of 2 again"}}
        gone = Damaged("manifest", "gone")
        assert known.of([Epoch(1), Epoch(2)], Epoch(1), lambda _: gone)[Epoch(2)] == gone

    def test_no_data_file_of_a_retained_epoch_goes_after_an_older_one_has_healed(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 4)
        objects = job.backend.objects("job")
        manifest = objects.store_path(objects.paths.manifest(Epoch(2)))
        data = objects.store.get(manifest).data
        objects.store.delete_many([manifest])
        assert isinstance(job.backend.cleanup_checkpoint("job", 2), RetentionRefused)
        objects.store.put(manifest, data)
        job.compact(PARTIAL)
        job.restart()
        with_epochs(job, 1)
        for oldest in (2, 3):
            assert isinstance(job.backend.cleanup_checkpoint("job", oldest), RetentionPlan)
        there = {info.path for info in objects.store.list()}
        for epoch in objects.list_epochs():
            needed = {objects.store_path(path) for path in read_references(objects, epoch)}
            assert needed - there <= {objects.store_path(objects.paths.commit_marker(epoch))}

    def test_what_is_remembered_is_bounded(self) -> None:
        known = KnownReferences(paths_max=3)
        asked: list[int] = []

        def read(epoch: Epoch) -> frozenset[str]:
            asked.append(int(epoch))
            return frozenset({f"a {epoch}", f"b {epoch}"})

        epochs = [Epoch(1), Epoch(2)]
        for _ in range(2):
            found = known.of(epochs, Epoch(1), read)
            assert {path for paths in found.values() for path in paths} == {"a 1", "b 1", "a 2", "b 2"}  # type: ignore[union-attr]
        assert asked == [1, 2, 1, 2]

    @pytest.mark.parametrize(
        ("keep", "listed", "known"),
        [(3, [1, 5], [2, 3, 4, 6]), (10, [1, 5], [3]), (20, [1, 6], [])],
    )
    def test_retention_waits_until_a_quarter_can_go_and_lists_objects_rarely(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch, keep: int, listed: list[int], known: list[int]
    ) -> None:
        at: dict[str, list[int]] = {"listed": [], "known": []}
        monkeypatch.setattr(upkeep, "LISTING_EPOCHS", 4)
        monkeypatch.setattr(upkeep, "retain_epochs", lambda *arguments: at["listed"].append(arguments[4]))
        monkeypatch.setattr(
            upkeep, "retain_known_epochs", lambda *arguments: at["known"].append(arguments[4])
        )
        job = jobs([KEYED])
        claim = job.backend.claim("job")
        beside = upkeep.Upkeep(
            job.backend.objects("job"),
            claim,
            job.backend.ambient,
            retention=RetentionPolicy(keep),
            compaction=None,
            compactor=lambda *_: {},
            clean_up=lambda _: None,
            executor=AtOnce(),
        )
        for number in range(1, 7):
            beside.after_epoch(Manifest("job", Epoch(number), claim.generation, None, 0, 0, Epoch(1)), {})
        assert at == {"listed": listed, "known": known}


class AtOnce(Executor):
    """Does work before `submit` returns."""

    def submit(self, work: Any, /, *arguments: Any, **settings: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*arguments, **settings))
        return future
