"""Claims of a generation over real stores: each driver gets its own, and fences the one before."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from tests.support.jobs.small_job import SmallJob, started_job
from tests.support.storage.store_faults import faults_on, flip_bit

from lakestate.coordinator.claim import check_fence, claim_generation
from lakestate.errors import CorruptionError, FencedError, InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import Generation
from lakestate.storage import ObjectStore
from lakestate.testing.faults import Fault, FaultyStore, Operation
from lakestate.testing.stepping import SteppingAmbient


class TestClaiming:
    def test_drivers_that_claim_at_once_get_generations_of_their_own(self, store: ObjectStore) -> None:
        count = 8
        barrier = Barrier(count)

        def claim(_: int) -> GenerationRecord:
            barrier.wait()
            return claim_generation(JobObjects(store, "job"), SteppingAmbient(uuid.uuid4().hex))

        with ThreadPoolExecutor(count) as pool:
            claimed = list(pool.map(claim, range(count)))
        fence = JobObjects(store, "job").read_fence()
        assert sorted(each.generation for each in claimed) == list(range(1, count + 1))
        assert fence is not None
        assert {each.state_id for each in claimed} == {fence.record.state_id}
        assert fence.record.generation == count

    def test_a_claim_fences_the_driver_before(self, store: ObjectStore) -> None:
        old, new = started_job(store, "old"), started_job(store, "new")
        check_fence(new.job, new.claim)
        with pytest.raises(FencedError, match="found generation 2; expected generation 1"):
            check_fence(old.job, old.claim)

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    def test_a_claim_whose_answer_is_lost_is_found_or_made_again(
        self, store: ObjectStore, fault: Fault
    ) -> None:
        first = SmallJob(FaultyStore(store, faults_on(Operation.CREATE, "job/generation.json", fault)), "a")
        first.start()
        second = SmallJob(FaultyStore(store, faults_on(Operation.SWAP, "job/generation.json", fault)), "b")
        second.start()
        assert (first.claim.generation, second.claim.generation) == (1, 2)
        check_fence(second.job, second.claim)

    def test_the_first_claim_gives_the_state_an_identity_that_later_ones_keep(
        self, store: ObjectStore
    ) -> None:
        first = started_job(store, "a")
        first.run_epoch()
        second = started_job(store, "b")
        assert first.claim.state_id
        assert second.parent is not None
        assert {second.claim.state_id, second.parent.state_id} == {first.claim.state_id}

    def test_a_job_that_was_deleted_and_started_again_has_another_identity(self, store: ObjectStore) -> None:
        first = started_job(store, "a")
        first.run_epoch()
        store.delete_many([info.path for info in store.list()])
        assert started_job(store, "b").claim.state_id not in ("", first.claim.state_id)

    def test_a_job_without_an_identity_keeps_having_none(self, store: ObjectStore) -> None:
        record = GenerationRecord("job", Generation(4), "old", 1)
        assert b"state_id" not in record.encode()
        store.put("job/generation.json", record.encode())
        job = started_job(store)
        job.run_epoch()
        assert (job.claim.generation, job.claim.state_id) == (5, "")

    def test_a_lost_fence_is_replaced_by_one_with_the_identity_of_the_epochs(
        self, store: ObjectStore
    ) -> None:
        first = started_job(store, "a")
        first.run_epoch()
        store.delete_many(["job/generation.json"])
        assert started_job(store, "b").claim.state_id == first.claim.state_id

    def test_a_fence_of_another_life_of_the_job_is_refused(self, store: ObjectStore) -> None:
        first = started_job(store, "a")
        first.run_epoch()
        foreign = GenerationRecord("job", Generation(7), "x", 1, "another")
        store.put("job/generation.json", foreign.encode())
        with pytest.raises(CorruptionError, match=r"different lives of this job.*found state another"):
            started_job(store, "b")

    def test_a_bad_job_name_is_refused_before_anything_is_written(self, store: ObjectStore) -> None:
        for name in ("a/b", "..", "a\n", "x" * 500):
            with pytest.raises(InvalidInputError, match="not a valid job name"):
                claim_generation(JobObjects(store, name), SteppingAmbient("a"))
        assert list(store.list()) == []

    def test_a_damaged_fence_is_named_and_not_claimed(self, store: ObjectStore) -> None:
        started_job(store)
        flip_bit(store, "job/generation.json")
        with pytest.raises(CorruptionError, match=r"job/generation\.json"):
            started_job(store, "b")
