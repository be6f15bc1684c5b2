"""The driver's workflows over real stores: claims, publication, commit, recovery, tags, retention."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from tests.support.jobs.small_job import SmallJob, check_promises, fresh_memory, outputs, restored

from lakestate.codec import encode_manifest
from lakestate.coordinator.claim import check_fence, claim_generation
from lakestate.coordinator.commit import commit_epoch
from lakestate.coordinator.recover import open_epoch, recover
from lakestate.coordinator.retain import preview, retain, retain_from
from lakestate.coordinator.tags import create_tag, delete_tag
from lakestate.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    IncompatibleStateError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import FormatVersion
from lakestate.protocol.publication import Collected, Fenced, Published, Superseded
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy, RetentionRefused
from lakestate.protocol.values import Epoch, Generation
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.faults import Fault, FaultyStore, Hook, Operation, faults_at
from lakestate.testing.stepping import SteppingAmbient

KEEP_ONE = RetentionPolicy(1)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_memory() if request.param == "memory" else open_store(f"file://{tmp_path}")


@pytest.fixture
def memory() -> ObjectStore:
    return fresh_memory()


def started(store: ObjectStore, name: str = "a") -> SmallJob:
    driver = SmallJob(store, name)
    driver.start()
    return driver


def on(operation: Operation, path: str, *faults: Fault) -> Hook:
    """Faults for the calls of one kind about one path, in turn; none afterwards."""
    waiting = iter(faults)

    def hook(asked: Operation, about: str) -> Fault:
        return next(waiting, Fault.NONE) if (asked, about) == (operation, path) else Fault.NONE

    return hook


def before_call(number: int, act: Callable[[], object]) -> Hook:
    """A hook that does something else just before the call of that number."""
    numbers = iter(range(10**6))

    def hook(operation: Operation, path: str) -> Fault:
        if next(numbers) == number:
            act()
        return Fault.NONE

    return hook


def damage(store: ObjectStore, path: str) -> None:
    data = bytearray(store.get(path).data)
    data[len(data) // 2] ^= 1
    store.put(path, bytes(data))


class TestClaiming:
    def test_drivers_that_claim_at_once_get_generations_of_their_own(self, store: ObjectStore) -> None:
        count = 8
        barrier = Barrier(count)

        def claim(_: int) -> Generation:
            barrier.wait()
            return claim_generation(JobObjects(store, "job"), SteppingAmbient(uuid.uuid4().hex)).generation

        with ThreadPoolExecutor(count) as pool:
            claimed = list(pool.map(claim, range(count)))
        fence = JobObjects(store, "job").read_fence()
        assert sorted(claimed) == list(range(1, count + 1))
        assert fence is not None
        assert fence.record.generation == count

    def test_a_claim_fences_the_driver_before(self, store: ObjectStore) -> None:
        old, new = started(store, "old"), started(store, "new")
        check_fence(new.job, new.mine)
        with pytest.raises(FencedError, match="found generation 2; expected generation 1"):
            check_fence(old.job, old.mine)

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_claim_whose_answer_is_lost_is_found_or_made_again(
        self, store: ObjectStore, fault: Fault
    ) -> None:
        first = SmallJob(FaultyStore(store, on(Operation.CREATE, "job/generation.json", fault)), "a")
        first.start()
        second = SmallJob(FaultyStore(store, on(Operation.SWAP, "job/generation.json", fault)), "b")
        second.start()
        assert (first.mine.generation, second.mine.generation) == (1, 2)
        check_fence(second.job, second.mine)

    def test_a_bad_job_name_is_refused_before_anything_is_written(self, store: ObjectStore) -> None:
        for name in ("a/b", "..", "a\n", "x" * 500):
            with pytest.raises(InvalidInputError, match="not a valid job name"):
                claim_generation(JobObjects(store, name), SteppingAmbient("a"))
        assert list(store.list()) == []

    def test_a_damaged_fence_is_named_and_not_claimed(self, store: ObjectStore) -> None:
        started(store)
        damage(store, "job/generation.json")
        with pytest.raises(CorruptionError, match=r"job/generation\.json"):
            started(store, "b")


class TestPublishing:
    def test_a_published_epoch_is_found_committed_and_restored_by_the_next_driver(
        self, store: ObjectStore
    ) -> None:
        first = started(store, "a")
        first.run_to(3)
        found = SmallJob(store, "b").start()
        assert found is not None
        assert (found.manifest, found.permit) == (first.parent, None)
        assert restored(first.job, Epoch(3)) == [b"rows of 3 by a", b"rows of 2 by a", b"rows of 1 by a"]
        check_promises(store)

    def test_a_fenced_driver_publishes_nothing(self, store: ObjectStore) -> None:
        old = started(store, "old")
        old.run_to(1)
        manifest = old.write(Epoch(2))
        started(store, "new")
        with pytest.raises(FencedError, match="another driver has taken over"):
            old.publish(manifest)
        assert old.job.list_epochs() == [1]

    def test_an_epoch_that_a_lower_generation_published_just_before_stands(self, store: ObjectStore) -> None:
        old = started(store, "old")
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
        old = started(store, "old")
        manifest = old.write(Epoch(1))

        def overtake(operation: Operation, path: str) -> Fault:
            if (operation, path) == (Operation.CREATE, "job/epochs/0000000001.json"):
                started(store, "new").run_to(1)
            return Fault.NONE

        old.job = replace(old.job, store=FaultyStore(store, overtake))
        assert old.publish(manifest) == Fenced(Generation(2))
        check_promises(store)

    def test_a_driver_that_slept_through_retention_cannot_bring_its_epoch_back(
        self, store: ObjectStore
    ) -> None:
        old = started(store, "old")
        manifest = old.write(Epoch(1))

        def an_hour_passes(operation: Operation, path: str) -> Fault:
            if (operation, path) == (Operation.CREATE, "job/epochs/0000000001.json"):
                new = started(store, "new")
                new.run_to(4)
                retain(new.job, new.mine, KEEP_ONE, new.ambient)
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
        retain(last.job, last.mine, KEEP_ONE, last.ambient)
        assert last.job.list_epochs() == [4]
        check_promises(store)

    def test_a_second_attempt_never_overwrites_the_objects_of_the_first(self, store: ObjectStore) -> None:
        old = started(store, "old")
        first = old.write(Epoch(1))
        old.job.create_new(lambda a: old.job.paths.manifest(Epoch(1), a), encode_manifest(first), "x")
        before = {info.path: store.get(info.path).data for info in store.list("job/checkpoints/")}
        new = started(store, "new")
        new.run_to(1)
        after = {info.path: store.get(info.path).data for info in store.list("job/checkpoints/")}
        assert {path: after[path] for path in before} == before
        check_promises(store)

    def test_a_manifest_of_another_generation_is_refused(self, store: ObjectStore) -> None:
        driver = started(store)
        manifest = replace(driver.write(Epoch(1)), generation=Generation(9))
        with pytest.raises(InvalidInputError, match="found 9; expected 1"):
            driver.publish(manifest)


RECORD = "job/epochs/0000000001.json"


class TestLostAnswers:
    def publishing(self, store: ObjectStore, hook: Hook) -> Callable[[], object]:
        driver = started(store)
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
        publish = self.publishing(store, on(Operation.CREATE, RECORD, *faults))
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
        publish = self.publishing(store, on(Operation.CREATE, RECORD, *faults))
        with pytest.raises(OutcomeUnknownError, match="epoch 1 may or may not be published"):
            publish()

    def test_a_store_that_goes_away_after_the_record_leaves_the_outcome_unknown(
        self, store: ObjectStore
    ) -> None:
        publish = self.publishing(store, on(Operation.GET, "job/retention.json", Fault.UNAVAILABLE))
        with pytest.raises(OutcomeUnknownError, match="epoch 1 may or may not be published"):
            publish()

    def test_a_store_that_is_away_before_the_record_leaves_nothing_published(
        self, store: ObjectStore
    ) -> None:
        publish = self.publishing(store, on(Operation.CREATE, RECORD, Fault.UNAVAILABLE))
        with pytest.raises(StorageUnavailableError):
            publish()
        assert JobObjects(store, "job").list_epochs() == []

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_manifest_whose_answer_is_lost_goes_under_another_name(
        self, store: ObjectStore, fault: Fault
    ) -> None:
        publish = self.publishing(store, on(Operation.CREATE, "job/checkpoints/1/manifest.pb", fault))
        outcome = publish()
        assert isinstance(outcome, Published)
        assert outcome.permit.manifest.path == "checkpoints/1/manifest.a-4.pb"
        restored(JobObjects(store, "job"), Epoch(1))

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_lost_commit_marker_costs_one_more_commit(self, store: ObjectStore, fault: Fault) -> None:
        marker = on(Operation.CREATE, "job/checkpoints/1/committed.json", fault)
        driver = started(FaultyStore(store, marker))
        driver.run_to(1)
        found = recover(driver.job, driver.mine)
        assert found is not None
        assert (found.permit is not None) == (fault is Fault.REQUEST_LOST)

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_boundary_whose_answer_is_lost_is_looked_up(self, store: ObjectStore, fault: Fault) -> None:
        driver = started(store)
        driver.run_to(4)
        driver.job = replace(
            driver.job, store=FaultyStore(store, on(Operation.CREATE, "job/retention.json", fault))
        )
        if fault is Fault.REQUEST_LOST:
            with pytest.raises(ConflictError, match="nothing was deleted"):
                retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
            assert driver.job.list_epochs() == [1, 2, 3, 4]
        else:
            retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
            assert driver.job.list_epochs() == [4]


class TestCommitting:
    def test_an_epoch_without_its_marker_is_committed_by_the_next_driver(self, store: ObjectStore) -> None:
        first = started(store, "a")
        manifest = first.write(Epoch(1))
        assert isinstance(first.publish(manifest), Published)
        assert outputs(store) == {}
        second = SmallJob(store, "b")
        found = second.start()
        assert found is not None
        assert (found.manifest, found.permit is not None) == (manifest, True)
        assert outputs(store) == {1: manifest.sinks[0].data.decode()}
        again = recover(second.job, second.mine)
        assert again is not None
        assert again.permit is None

    def test_a_damaged_marker_means_commit_again(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(1)
        damage(store, "job/checkpoints/1/committed.json")
        found = recover(driver.job, driver.mine)
        assert found is not None
        assert found.permit is not None

    def test_a_driver_that_was_fenced_after_publishing_leaves_the_commit_to_the_other(
        self, store: ObjectStore
    ) -> None:
        old = started(store, "old")
        manifest = old.write(Epoch(1))
        outcome = old.publish(manifest)
        assert isinstance(outcome, Published)
        claim_generation(old.job, SteppingAmbient("new"))
        with pytest.raises(FencedError):
            old.commit(outcome.permit, manifest)
        assert outputs(store) == {}

    def test_output_of_a_sink_that_the_job_no_longer_has_is_not_dropped(self, store: ObjectStore) -> None:
        driver = started(store)
        manifest = driver.write(Epoch(1))
        outcome = driver.publish(manifest)
        assert isinstance(outcome, Published)
        with pytest.raises(InvalidInputError, match="found out; expected no sink; start once with these"):
            commit_epoch(driver.job, driver.mine, outcome.permit, manifest, {})
        assert driver.job.read_committed(Epoch(1)) is None

    def test_a_permit_is_for_its_own_manifest_only(self, store: ObjectStore) -> None:
        driver = started(store)
        manifest = driver.write(Epoch(1))
        outcome = driver.publish(manifest)
        assert isinstance(outcome, Published)
        with pytest.raises(AssertionError):
            driver.commit(outcome.permit, replace(manifest, epoch=Epoch(2)))


class TestRecovering:
    def test_a_job_that_never_published_starts_fresh(self, store: ObjectStore) -> None:
        assert SmallJob(store, "a").start() is None

    @pytest.mark.parametrize(
        ("path", "how"),
        [
            ("job/epochs/0000000003.json", "damaged"),
            ("job/checkpoints/3/manifest.pb", "damaged"),
            ("job/checkpoints/3/manifest.pb", "deleted"),
        ],
    )
    def test_a_broken_newest_epoch_is_named_and_the_newest_good_one_offered(
        self, store: ObjectStore, path: str, how: str
    ) -> None:
        driver = started(store)
        driver.run_to(3)
        if how == "damaged":
            damage(store, path)
        else:
            store.delete_many([path])
        with pytest.raises(CorruptionError) as caught:
            recover(driver.job, driver.mine)
        assert caught.value.object_name == f"{store.url}/{path}"
        assert "epoch 3 is published but cannot be restored" in str(caught.value)
        assert "epoch 2 is the newest intact one" in str(caught.value)

    def test_records_that_were_all_deleted_do_not_look_like_a_fresh_job(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(3)
        retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
        store.delete_many(["job/epochs/0000000003.json"])
        with pytest.raises(CorruptionError, match=r"epoch 3 is published but .*job/epochs/0000000003\.json"):
            recover(driver.job, driver.mine)

    def test_an_overtaken_driver_is_told_so_even_if_what_it_sees_is_broken(self, store: ObjectStore) -> None:
        old = started(store, "old")
        old.run_to(1)
        started(store, "new")
        damage(store, "job/checkpoints/1/manifest.pb")
        with pytest.raises(FencedError):
            recover(old.job, old.mine)

    def test_a_manifest_of_a_newer_format_asks_for_a_newer_lakestate(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.publish(replace(driver.write(Epoch(1)), format=FormatVersion(2, 0)))
        with pytest.raises(IncompatibleStateError, match="use a newer version of Lakestate"):
            recover(driver.job, driver.mine)

    @pytest.mark.parametrize("kind", ["metadata", "parquet"])
    def test_every_truncation_and_bit_flip_below_the_manifest_is_named(
        self, memory: ObjectStore, kind: str
    ) -> None:
        driver = started(memory)
        driver.run_to(1)
        path = next(info.path for info in memory.list("job/checkpoints/") if info.path.endswith(kind))
        whole = memory.get(path).data
        for damaged in (whole[:-1], b"", whole + b"x", bytes([whole[0] ^ 1]) + whole[1:]):
            memory.put(path, damaged)
            with pytest.raises(CorruptionError, match=path):
                restored(driver.job, Epoch(1))
        memory.delete_many([path])
        with pytest.raises(CorruptionError, match=f"a referenced object is missing: .*{path}"):
            restored(driver.job, Epoch(1))

    def test_a_record_in_the_place_of_another_epoch_is_found(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(2)
        store.put("job/epochs/0000000002.json", store.get("job/epochs/0000000001.json").data)
        with pytest.raises(CorruptionError, match="found epoch 1; expected epoch 2"):
            driver.job.read_epoch(Epoch(2))


class TestRetaining:
    def test_only_what_no_retained_epoch_needs_is_deleted(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(6)
        foreign = ["job/notes.txt", "job/checkpoints/1/notes.txt", "other/epochs/0000000001.json"]
        for path in foreign:
            store.put(path, b"mine")
        planned = preview(driver.job, RetentionPolicy(2))
        before = {info.path for info in store.list()}
        plan = retain(driver.job, driver.mine, RetentionPolicy(2), driver.ambient)
        assert plan == planned
        assert isinstance(plan, RetentionPlan)
        after = {info.path for info in store.list()}
        deleted = {f"job/{path}" for path in (*plan.delete_first, *plan.delete_then)}
        assert after == before - deleted | {"job/retention.json"}
        assert {*foreign} <= after
        assert driver.job.list_epochs() == [5, 6]
        # Epoch 5 carries the files of 4 and 3.
        assert [info.path for info in store.list("job/checkpoints/") if info.path.endswith(".parquet")] == [
            f"job/checkpoints/{epoch}/operator-op/users-0-a-{3 * epoch - 1}.parquet" for epoch in (3, 4, 5, 6)
        ]
        check_promises(store)

    def test_too_few_epochs_leave_everything_as_it_is(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(2)
        before = [info.path for info in store.list()]
        assert retain(driver.job, driver.mine, RetentionPolicy(3), driver.ambient) is None
        assert [info.path for info in store.list()] == before

    def test_a_retention_that_was_cut_short_is_finished_by_the_next(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(4)
        dying = replace(
            driver.job,
            store=FaultyStore(
                store, on(Operation.DELETE, "job/checkpoints/1/manifest.pb", Fault.CRASH_BEFORE)
            ),
        )
        with pytest.raises(BaseException, match="before delete"):
            retain(dying, driver.mine, KEEP_ONE, driver.ambient)
        leftover = preview(driver.job, KEEP_ONE)
        assert isinstance(leftover, RetentionPlan)
        assert "checkpoints/1/manifest.pb" in leftover.delete_then
        assert retain(driver.job, driver.mine, KEEP_ONE, driver.ambient) == leftover
        rest = preview(driver.job, KEEP_ONE)
        assert isinstance(rest, RetentionPlan)
        assert (rest.delete_first, rest.delete_then) == ((), ())

    def test_unreadable_metadata_deletes_nothing_and_leaves_older_epochs_open(
        self, store: ObjectStore
    ) -> None:
        driver = started(store)
        driver.run_to(4)
        damage(store, "job/checkpoints/4/manifest.pb")
        before = [info.path for info in store.list()]
        refused = retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert [each.object_name for each in refused.damages] == [
            f"{store.url}/job/checkpoints/4/manifest.pb"
        ]
        assert [info.path for info in store.list()] == before
        assert len(restored(driver.job, Epoch(3))) == 3

    def test_a_boundary_after_everything_published_deletes_nothing_and_is_not_stored(
        self, store: ObjectStore
    ) -> None:
        driver = started(store)
        driver.run_to(4)
        before = [info.path for info in store.list()]
        refused = retain_from(driver.job, driver.mine, Epoch(5), driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert [info.path for info in store.list()] == before
        check_promises(store)

    def test_a_boundary_before_the_stored_one_changes_nothing(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(4)
        retain_from(driver.job, driver.mine, Epoch(4), driver.ambient)
        plan = retain_from(driver.job, driver.mine, Epoch(2), driver.ambient)
        assert isinstance(plan, RetentionPlan)
        assert (plan.boundary, plan.delete_first, plan.delete_then) == (4, (), ())

    def test_a_merge_that_takes_many_epochs_is_not_collected_before_it_is_swapped_in(
        self, store: ObjectStore
    ) -> None:
        driver = started(store)
        driver.run_to(2)
        merged = f"job/{driver.job.paths.data(Epoch(3), 'op', 'users', 0, 'merged')}"
        store.put(merged, b"rows of 1 and 2")
        driver.run_to(8)
        retain(driver.job, driver.mine, KEEP_ONE, driver.ambient, in_flight=Epoch(3))
        assert driver.job.list_epochs() == [3, 4, 5, 6, 7, 8]
        assert store.get(merged).data == b"rows of 1 and 2"
        retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
        assert driver.job.list_epochs() == [8]
        with pytest.raises(NotFoundError):
            store.get(merged)

    def test_the_records_go_before_what_they_lead_to(self, memory: ObjectStore) -> None:
        driver = started(memory)
        driver.run_to(4)
        watched = FaultyStore(memory)
        plan = retain(replace(driver.job, store=watched), driver.mine, KEEP_ONE, driver.ambient)
        assert isinstance(plan, RetentionPlan)
        deleted = [call.path for call in watched.calls if call.operation is Operation.DELETE]
        assert deleted == [f"job/{path}" for path in (*plan.delete_first, *plan.delete_then)]
        assert deleted[:3] == [f"job/epochs/000000000{epoch}.json" for epoch in (1, 2, 3)]

    def test_a_damaged_tag_deletes_nothing(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(4)
        create_tag(driver.job, "keep", Epoch(2), driver.ambient)
        damage(store, "job/tags/keep.json")
        before = [info.path for info in store.list()]
        refused = retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert [each.object_name for each in refused.damages] == [f"{store.url}/job/tags/keep.json"]
        assert [info.path for info in store.list()] == before

    def test_a_tag_that_is_damaged_once_the_boundary_has_moved_deletes_nothing(
        self, memory: ObjectStore
    ) -> None:
        driver = started(memory)
        driver.run_to(4)
        create_tag(driver.job, "keep", Epoch(2), driver.ambient)
        watched = FaultyStore(memory)

        def hook(operation: Operation, path: str) -> Fault:
            if operation is Operation.LIST and path == "job/tags/" and driver.job.read_boundary() is not None:
                memory.put("job/tags/keep.json", b"{}")
            return Fault.NONE

        watched.hook = hook
        refused = retain(replace(driver.job, store=watched), driver.mine, KEEP_ONE, driver.ambient)
        assert isinstance(refused, RetentionRefused)
        assert "job/tags/keep.json" in str(refused)
        assert driver.job.list_epochs() == [1, 2, 3, 4]

    def test_a_fenced_driver_deletes_nothing(self, store: ObjectStore) -> None:
        old = started(store, "old")
        old.run_to(4)
        started(store, "new")
        before = [info.path for info in store.list()]
        with pytest.raises(FencedError):
            retain(old.job, old.mine, KEEP_ONE, old.ambient)
        assert [info.path for info in store.list()] == before

    def test_a_driver_that_sleeps_just_before_it_deletes_deletes_nothing_that_counts(
        self, memory: ObjectStore
    ) -> None:
        old = started(memory, "old")
        old.run_to(4)

        def an_hour_passes() -> None:
            new = started(memory, "new")
            new.run_to(8)
            create_tag(new.job, "kept", Epoch(5), new.ambient)
            retain(new.job, new.mine, RetentionPolicy(2), new.ambient)

        sleeping = FaultyStore(memory)
        first_delete = iter([an_hour_passes])

        def hook(operation: Operation, path: str) -> Fault:
            if operation is Operation.DELETE:
                next(first_delete, lambda: None)()
            return Fault.NONE

        sleeping.hook = hook
        retain(replace(old.job, store=sleeping), old.mine, KEEP_ONE, old.ambient)
        assert old.job.list_epochs() == [5, 7, 8]
        check_promises(memory)


class TestTagging:
    def test_a_tag_keeps_its_epoch_until_it_is_deleted(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(5)
        create_tag(driver.job, "release-1", Epoch(2), driver.ambient)
        retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
        assert driver.job.list_epochs() == [2, 5]
        assert restored(driver.job, Epoch(2)) == [b"rows of 2 by a", b"rows of 1 by a"]
        delete_tag(driver.job, "release-1")
        retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
        assert driver.job.list_epochs() == [5]
        check_promises(store)

    def test_an_epoch_that_is_not_published_cannot_be_tagged(self, store: ObjectStore) -> None:
        driver = started(store)
        with pytest.raises(NotFoundError, match="epoch 9 is not published"):
            create_tag(driver.job, "t", Epoch(9), driver.ambient)
        assert driver.job.read_tags() == ()

    def test_a_tag_is_never_moved(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(2)
        tag = create_tag(driver.job, "t", Epoch(1), driver.ambient)
        with pytest.raises(ConflictError, match="found epoch 1; choose another name"):
            create_tag(driver.job, "t", Epoch(2), driver.ambient)
        assert driver.job.read_tags() == (tag,)

    def test_an_epoch_before_the_boundary_gets_no_second_tag(self, store: ObjectStore) -> None:
        driver = started(store)
        driver.run_to(3)
        tag = create_tag(driver.job, "one", Epoch(1), driver.ambient)
        retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
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
        retain(replace(driver.job, store=counting), driver.mine, KEEP_ONE, driver.ambient)
        return len(counting.calls)

    def four_epochs(self) -> SmallJob:
        driver = started(fresh_memory())
        driver.run_to(4)
        return driver

    def tag_during_retention(self, number: int) -> str:
        driver = self.four_epochs()

        def tag() -> None:
            with suppress(NotFoundError):
                create_tag(driver.job, "late", Epoch(2), SteppingAmbient("tagger"))

        store = FaultyStore(driver.store, before_call(number, tag))
        retain(replace(driver.job, store=store), driver.mine, KEEP_ONE, driver.ambient)
        return self.outcome(driver)

    def retain_during_tagging(self, number: int) -> str:
        driver = self.four_epochs()
        store = FaultyStore(
            driver.store,
            before_call(number, lambda: retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)),
        )
        with suppress(NotFoundError):
            create_tag(replace(driver.job, store=store), "late", Epoch(2), SteppingAmbient("tagger"))
        return self.outcome(driver)

    def outcome(self, driver: SmallJob) -> str:
        check_promises(driver.store)
        driver.run_to(6)
        retain(driver.job, driver.mine, KEEP_ONE, driver.ambient)
        check_promises(driver.store)
        return "tagged" if driver.job.read_tags() else "refused"


def test_faults_at_numbers_the_calls_from_zero(memory: ObjectStore) -> None:
    store = FaultyStore(memory, faults_at({1: Fault.UNAVAILABLE}))
    store.put("a", b"1")
    with pytest.raises(StorageUnavailableError, match="a"):
        store.get("a")
    assert store.get("a").data == b"1"
