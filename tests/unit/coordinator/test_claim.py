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
from lakestate.protocol.values import Generation
from lakestate.storage import ObjectStore
from lakestate.testing.faults import Fault, FaultyStore, Operation
from lakestate.testing.stepping import SteppingAmbient


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
