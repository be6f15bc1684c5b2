"""Retention over real stores: what no retained epoch needs is deleted, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.jobs.small_job import check_promises, restored, started_job
from tests.support.storage.store_faults import faults_on, flip_bit

from lakestate.coordinator.retention.retain import observe_objects, retain_epochs, retain_from
from lakestate.coordinator.retention.tags import create_tag
from lakestate.errors import FencedError, NotFoundError
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy, RetentionRefused, plan_retention
from lakestate.protocol.values import Epoch
from lakestate.storage import ObjectStore
from lakestate.testing.faults import Fault, FaultyStore, Operation

KEEP_ONE = RetentionPolicy(1)


class TestRetaining:
    def test_only_what_no_retained_epoch_needs_is_deleted(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(6)
        foreign = ["job/notes.txt", "job/checkpoints/1/notes.txt", "other/epochs/0000000001.json"]
        for path in foreign:
            store.put(path, b"mine")
        planned = plan_retention(observe_objects(driver.job, Epoch(5)))
        before = {info.path for info in store.list()}
        plan = retain_epochs(driver.job, driver.claim, RetentionPolicy(2), driver.ambient)
        assert plan == planned
        assert isinstance(plan, RetentionPlan)
        after = {info.path for info in store.list()}
        deleted = {f"job/{path}" for path in (*plan.delete_first, *plan.delete_then)}
        assert after == before - deleted | {"job/retention.json"}
        assert {*foreign} <= after
        assert driver.job.list_epochs() == [5, 6]
        # Epoch 5 carries the files of 4 and 3.
        assert [info.path for info in store.list("job/checkpoints/") if info.path.endswith(".parquet")] == [
            f"job/checkpoints/{epoch}/operator-op/users-0-a-{3 * epoch}.parquet" for epoch in (3, 4, 5, 6)
        ]
        check_promises(store)

    def test_too_few_epochs_leave_everything_as_it_is(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(2)
        before = [info.path for info in store.list()]
        assert retain_epochs(driver.job, driver.claim, RetentionPolicy(3), driver.ambient) is None
        assert [info.path for info in store.list()] == before

    def test_a_retention_that_was_cut_short_is_finished_by_the_next(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(4)
        dying = replace(
            driver.job,
            store=FaultyStore(
                store, faults_on(Operation.DELETE, "job/checkpoints/1/manifest.pb", Fault.CRASH_BEFORE)
            ),
        )
        with pytest.raises(BaseException, match="before delete"):
            retain_epochs(dying, driver.claim, KEEP_ONE, driver.ambient)
        leftover = plan_retention(observe_objects(driver.job, Epoch(4)))
        assert isinstance(leftover, RetentionPlan)
        assert "checkpoints/1/manifest.pb" in leftover.delete_then
        assert retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient) == leftover
        rest = plan_retention(observe_objects(driver.job, Epoch(4)))
        assert isinstance(rest, RetentionPlan)
        assert (rest.delete_first, rest.delete_then) == ((), ())

    def test_unreadable_metadata_deletes_nothing_and_leaves_older_epochs_open(
        self, store: ObjectStore
    ) -> None:
        driver = started_job(store)
        driver.run_to(4)
        flip_bit(store, "job/checkpoints/4/manifest.pb")
        before = [info.path for info in store.list()]
        refused = retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert [each.object_name for each in refused.damages] == [
            f"{store.url}/job/checkpoints/4/manifest.pb"
        ]
        assert [info.path for info in store.list()] == before
        assert len(restored(driver.job, Epoch(3))) == 3

    def test_a_boundary_after_everything_published_deletes_nothing_and_is_not_stored(
        self, store: ObjectStore
    ) -> None:
        driver = started_job(store)
        driver.run_to(4)
        before = [info.path for info in store.list()]
        refused = retain_from(driver.job, driver.claim, Epoch(5), driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert [info.path for info in store.list()] == before
        check_promises(store)

    def test_a_boundary_before_the_stored_one_changes_nothing(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(4)
        retain_from(driver.job, driver.claim, Epoch(4), driver.ambient)
        plan = retain_from(driver.job, driver.claim, Epoch(2), driver.ambient)
        assert isinstance(plan, RetentionPlan)
        assert (plan.boundary, plan.delete_first, plan.delete_then) == (4, (), ())

    def test_a_merge_that_takes_many_epochs_is_not_collected_before_it_is_swapped_in(
        self, store: ObjectStore
    ) -> None:
        driver = started_job(store)
        driver.run_to(2)
        merged = f"job/{driver.job.paths.data(Epoch(3), 'op', 'users', 0, 'merged')}"
        store.put(merged, b"rows of 1 and 2")
        driver.run_to(8)
        retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient, in_flight=Epoch(3))
        assert driver.job.list_epochs() == [3, 4, 5, 6, 7, 8]
        assert store.get(merged).data == b"rows of 1 and 2"
        retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        assert driver.job.list_epochs() == [8]
        with pytest.raises(NotFoundError):
            store.get(merged)

    def test_the_records_go_before_what_they_lead_to(self, memory: ObjectStore) -> None:
        driver = started_job(memory)
        driver.run_to(4)
        watched = FaultyStore(memory)
        plan = retain_epochs(replace(driver.job, store=watched), driver.claim, KEEP_ONE, driver.ambient)
        assert isinstance(plan, RetentionPlan)
        deleted = [call.path for call in watched.calls if call.operation is Operation.DELETE]
        assert deleted == [f"job/{path}" for path in (*plan.delete_first, *plan.delete_then)]
        assert deleted[:3] == [f"job/epochs/000000000{epoch}.json" for epoch in (1, 2, 3)]

    def test_a_damaged_tag_deletes_nothing(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(4)
        create_tag(driver.job, "keep", Epoch(2), driver.ambient)
        flip_bit(store, "job/tags/keep.json")
        before = [info.path for info in store.list()]
        refused = retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert [each.object_name for each in refused.damages] == [f"{store.url}/job/tags/keep.json"]
        assert [info.path for info in store.list()] == before

    def test_a_tag_that_is_damaged_once_the_boundary_has_moved_deletes_nothing(
        self, memory: ObjectStore
    ) -> None:
        driver = started_job(memory)
        driver.run_to(4)
        create_tag(driver.job, "keep", Epoch(2), driver.ambient)
        watched = FaultyStore(memory)

        def hook(operation: Operation, path: str) -> Fault:
            if operation is Operation.LIST and path == "job/tags/" and driver.job.read_boundary() is not None:
                memory.put("job/tags/keep.json", b"{}")
            return Fault.NONE

        watched.hook = hook
        refused = retain_epochs(replace(driver.job, store=watched), driver.claim, KEEP_ONE, driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert "job/tags/keep.json" in str(refused)
        assert driver.job.list_epochs() == [1, 2, 3, 4]

    def test_a_fenced_driver_deletes_nothing(self, store: ObjectStore) -> None:
        old = started_job(store, "old")
        old.run_to(4)
        started_job(store, "new")
        before = [info.path for info in store.list()]
        with pytest.raises(FencedError):
            retain_epochs(old.job, old.claim, KEEP_ONE, old.ambient)
        assert [info.path for info in store.list()] == before

    def test_a_driver_that_sleeps_just_before_it_deletes_deletes_nothing_that_counts(
        self, memory: ObjectStore
    ) -> None:
        old = started_job(memory, "old")
        old.run_to(4)

        def an_hour_passes() -> None:
            new = started_job(memory, "new")
            new.run_to(8)
            create_tag(new.job, "kept", Epoch(5), new.ambient)
            retain_epochs(new.job, new.claim, RetentionPolicy(2), new.ambient)

        sleeping = FaultyStore(memory)
        first_delete = iter([an_hour_passes])

        def hook(operation: Operation, path: str) -> Fault:
            if operation is Operation.DELETE:
                next(first_delete, lambda: None)()
            return Fault.NONE

        sleeping.hook = hook
        # It has deleted records of epochs by then, and nothing else.
        with pytest.raises(FencedError):
            retain_epochs(replace(old.job, store=sleeping), old.claim, KEEP_ONE, old.ambient)
        assert old.job.list_epochs() == [5, 7, 8]
        check_promises(memory)
