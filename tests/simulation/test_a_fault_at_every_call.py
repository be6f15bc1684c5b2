"""A small history in which every single call of the store goes wrong once, in every way.

First the history runs without faults, to learn its calls. Then it runs once per call and fault; a
new driver takes over, finishes, and the promises must hold. Last, the driver does not die but
sleeps at the call while another one does everything, and then continues as if nothing had happened.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.jobs.small_job import NotPublishedError, SmallJob, check_promises, fresh_memory

from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.coordinator.retention.tags import create_tag
from lakestate.errors import LakestateError
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy
from lakestate.protocol.values import Epoch
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.faults import Fault, FaultyStore, Operation, SimulatedCrash, StoreCall, faults_at

KEEP_ONE = RetentionPolicy(1)
LAST = 3
FAULTS = [fault for fault in Fault if fault is not Fault.NONE]


def run_history(store: ObjectStore, name: str, last: int = LAST) -> SmallJob:
    """Claim, publish and commit up to `last`, tag the first epoch, keep one. Can be run again."""
    driver = SmallJob(store, name)
    driver.start()
    driver.run_to(2)
    # A driver that was killed after tagging finds its tag.
    create_tag(driver.job, "first", Epoch(1), driver.ambient)
    driver.run_to(last)
    retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
    return driver


def calls_of_the_history(store: ObjectStore) -> list[StoreCall]:
    counting = FaultyStore(store)
    run_history(counting, "counting")
    return counting.calls


def check_the_end(store: ObjectStore) -> None:
    """All promises hold, and one more retention finds nothing left over."""
    check_promises(store)
    last = SmallJob(store, "last")
    last.start()
    last.run_epoch()
    retain_epochs(last.job, last.claim, KEEP_ONE, last.ambient)
    check_promises(store)
    rest = retain_epochs(last.job, last.claim, KEEP_ONE, last.ambient)
    assert isinstance(rest, RetentionPlan)
    assert (rest.delete_first, rest.delete_then) == ((), ())


@dataclass(frozen=True, slots=True)
class Point:
    """Where something goes wrong."""

    number: int
    call: StoreCall
    fault: Fault

    def __str__(self) -> str:
        return f"call {self.number}, {self.call}: {self.fault.value}"


def fail_and_recover(store: ObjectStore, point: Point) -> None:
    with suppress(SimulatedCrash, LakestateError):
        run_history(FaultyStore(store, faults_at({point.number: point.fault})), "first")
    run_history(store, "second")
    tags = [tag.epoch for tag in SmallJob(store, "reader").job.read_tags()]
    assert tags == [Epoch(1)]
    check_the_end(store)


def test_the_history_without_faults_keeps_the_promises() -> None:
    store = fresh_memory()
    driver = run_history(store, "only")
    assert driver.job.list_epochs() == [1, 3]
    check_the_end(store)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
def test_whatever_goes_wrong_at_any_call_the_next_driver_makes_good(
    fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = calls_of_the_history(fresh_memory())
    for number, call in enumerate(calls):
        point = Point(number, call, fault)
        try:
            fail_and_recover(fresh_memory(), point)
        except BaseException as failure:
            raise AssertionError(f"broken by {point}") from failure
    with capsys.disabled():
        print(f"\n{len(calls)} calls, each with: {fault.value}")


def test_a_crash_after_any_write_to_local_files_is_made_good(tmp_path: Path) -> None:
    calls = calls_of_the_history(open_store(f"file://{tmp_path}/counting"))
    writes = [(number, call) for number, call in enumerate(calls) if call.operation.writes]
    for number, call in writes:
        point = Point(number, call, Fault.CRASH_AFTER)
        try:
            fail_and_recover(open_store(f"file://{tmp_path}/{number}"), point)
        except BaseException as failure:
            raise AssertionError(f"broken by {point}") from failure


def sleep_and_wake(store: ObjectStore, number: int) -> None:
    numbers = iter(range(10**6))

    def hook(operation: Operation, path: str) -> Fault:
        if next(numbers) == number:
            run_history(store, "awake", last=6)
        return Fault.NONE

    with suppress(LakestateError, NotPublishedError):
        run_history(FaultyStore(store, hook), "sleeping")


def test_a_driver_that_sleeps_at_any_call_while_another_finishes_changes_nothing_that_counts() -> None:
    calls = calls_of_the_history(fresh_memory())
    for number, call in enumerate(calls):
        store = fresh_memory()
        try:
            sleep_and_wake(store, number)
            check_the_end(store)
        except BaseException as failure:
            raise AssertionError(f"broken by sleeping at call {number}, {call}") from failure
