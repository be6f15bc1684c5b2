"""A fence that is damaged, lost or set back is rebuilt from the epochs of its job."""

from __future__ import annotations

import uuid

import pytest
from tests.support.jobs.small_job import SmallJob, started_job
from tests.support.storage.store_faults import faults_on

import lakestate as ls
from lakestate.coordinator.claim import check_fence
from lakestate.coordinator.retention.retain import retain_from
from lakestate.errors import CorruptionError, FencedError, InvalidInputError, NotFoundError
from lakestate.protocol.paths import FENCE, ObjectKind, parse_object_name
from lakestate.protocol.records import GenerationRecord
from lakestate.protocol.values import Epoch, Generation
from lakestate.repair import RebuiltFence, rebuild_fence
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.faults import Fault, FaultyStore, Operation

FENCE_PATH = f"job/{FENCE}"


def flip_bit(store: ObjectStore, path: str, bit: int = 100) -> bytes:
    """Change one bit of an object, and return what it holds then."""
    data = bytearray(store.get(path).data)
    data[bit // 8] ^= 1 << bit % 8
    store.put(path, bytes(data))
    return bytes(data)


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def store(url: str) -> ObjectStore:
    return open_store(url)


@pytest.fixture
def backend(url: str) -> ls.ParquetBackend:
    return ls.ParquetBackend(url, cache_bytes=0)


@pytest.fixture
def driver(store: ObjectStore) -> SmallJob:
    """The third driver of a job with two epochs."""
    for name in ("a", "b"):
        started_job(store, name).run_epoch()
    return started_job(store, "c")


def over(backend: ls.ParquetBackend, store: ObjectStore) -> ls.ParquetBackend:
    backend.__dict__["_store"] = store
    return backend


@pytest.mark.parametrize("bit", [0, 100, 400, 700, 1000])
def test_one_flipped_bit_does_not_end_a_job(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob, bit: int
) -> None:
    damaged = flip_bit(store, FENCE_PATH, bit)
    with pytest.raises(CorruptionError, match=FENCE):
        started_job(store, "d")
    rebuilt = rebuild_fence(backend, "job")
    assert rebuilt.set_aside is not None
    aside = rebuilt.set_aside.removeprefix(f"{store.url}/")
    assert store.get(aside).data == damaged
    assert parse_object_name(aside.removeprefix("job/")).kind is ObjectKind.SET_ASIDE
    assert (rebuilt.state_id, rebuilt.epoch) == (driver.claim.state_id, Epoch(2))
    # Above the epochs, and above the damaged fence if its number can still be read.
    assert rebuilt.generation == (3 if bit == 400 else 4)
    again = started_job(store, "d")
    assert again.parent == driver.parent
    again.run_epoch()


def test_a_driver_that_still_runs_is_fenced(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob
) -> None:
    flip_bit(store, FENCE_PATH)
    rebuild_fence(backend, "job")
    with pytest.raises(FencedError):
        check_fence(driver.job, driver.claim)
    with pytest.raises(FencedError):
        driver.run_epoch()


def test_a_lost_fence_is_rebuilt_above_the_generations_of_the_epochs(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob
) -> None:
    store.delete_many([FENCE_PATH])
    assert rebuild_fence(backend, "job") == RebuiltFence(Generation(3), driver.claim.state_id, Epoch(2), None)


def test_a_fence_that_was_set_back_is_replaced(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob
) -> None:
    old = GenerationRecord("job", Generation(1), "old", 1, driver.claim.state_id)
    store.put(FENCE_PATH, old.encode())
    assert rebuild_fence(backend, "job").generation == 3
    started_job(store, "d").run_epoch()


def test_a_fence_of_another_life_of_the_job_is_replaced(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob
) -> None:
    store.put(FENCE_PATH, GenerationRecord("job", Generation(9), "new", 1, "another").encode())
    rebuilt = rebuild_fence(backend, "job")
    assert (rebuilt.generation, rebuilt.state_id) == (10, driver.claim.state_id)


def test_an_intact_fence_stays(store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob) -> None:
    before = store.get(FENCE_PATH)
    with pytest.raises(InvalidInputError, match="the fence is intact"):
        rebuild_fence(backend, "job")
    assert store.get(FENCE_PATH) == before
    assert [info.path for info in store.list("job/set-aside/")] == []
    check_fence(driver.job, driver.claim)


def test_a_claim_that_comes_first_is_not_overwritten(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob
) -> None:
    """Somebody has restored the fence, and a driver has claimed the job, while the repair was under way."""
    whole = store.get(FENCE_PATH).data
    flip_bit(store, FENCE_PATH)

    class Restored(FaultyStore):
        def compare_and_swap(self, path: str, data: bytes, expected: object) -> object:  # type: ignore[override]
            store.put(FENCE_PATH, whole)
            newer.append(started_job(store, "d"))
            return super().compare_and_swap(path, data, expected)  # type: ignore[arg-type]

    newer: list[SmallJob] = []
    with pytest.raises(InvalidInputError, match="intact"):
        rebuild_fence(over(backend, Restored(store, lambda *_: Fault.NONE)), "job")
    check_fence(newer[0].job, newer[0].claim)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
def test_a_repair_whose_answer_is_lost_is_found_or_made_again(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob, fault: Fault
) -> None:
    flip_bit(store, FENCE_PATH)
    rebuilt = rebuild_fence(
        over(backend, FaultyStore(store, faults_on(Operation.SWAP, FENCE_PATH, fault))), "job"
    )
    fence = driver.job.read_fence()
    assert fence is not None
    assert fence.record.generation == rebuilt.generation


def test_a_job_that_never_was_is_not_found(backend: ls.ParquetBackend) -> None:
    with pytest.raises(NotFoundError, match="no such job"):
        rebuild_fence(backend, "job")


def test_epochs_that_cannot_be_read_leave_nothing_to_rebuild_from(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob
) -> None:
    for path in ("job/epochs/0000000001.json", "job/epochs/0000000002.json", FENCE_PATH):
        flip_bit(store, path)
    with pytest.raises(CorruptionError, match="no epoch can be read"):
        rebuild_fence(backend, "job")


def test_what_was_set_aside_survives_retention(
    store: ObjectStore, backend: ls.ParquetBackend, driver: SmallJob
) -> None:
    flip_bit(store, FENCE_PATH)
    rebuild_fence(backend, "job")
    before = [info.path for info in store.list("job/set-aside/")]
    newer = started_job(store, "d")
    newer.run_epoch()
    retain_from(newer.job, newer.claim, Epoch(3), newer.ambient)
    assert [info.path for info in store.list("job/set-aside/")] == before != []
    assert not [each for each in ls.verify(backend, "job").orphans if "set-aside" in each.object_name]


def test_a_damaged_boundary_can_be_removed_as_its_error_says(store: ObjectStore, driver: SmallJob) -> None:
    driver.run_to(4)
    retain_from(driver.job, driver.claim, Epoch(3), driver.ambient)
    flip_bit(store, "job/retention.json")
    with pytest.raises(CorruptionError, match="remove it while no driver runs: retention writes it again"):
        started_job(store, "d")
    store.delete_many(["job/retention.json"])
    newer = started_job(store, "d")
    newer.run_epoch()
    retain_from(newer.job, newer.claim, Epoch(4), newer.ambient)
    boundary = newer.job.read_boundary()
    assert boundary is not None
    assert (boundary.record.oldest, newer.job.list_epochs()) == (Epoch(4), [Epoch(4), Epoch(5)])
