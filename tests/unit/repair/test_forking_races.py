"""A fork is made while others act, or its process fails: it is whole or not there, and nothing dangles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from tests.support.jobs.forked_job import (
    KEEP_TWO,
    PARENT,
    TRIAL,
    add,
    fresh_backend,
    is_sound,
    objects_of,
    start,
    totals,
)
from tests.support.storage.store_faults import before_call

import lakestate as ls
from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.errors import ConflictError, NotFoundError, OutcomeUnknownError, StorageUnavailableError
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy
from lakestate.testing.faults import Fault, FaultyStore, Operation, SimulatedCrash, faults_at

STATE = {"a": 1, "b": 2, "c": 1}
"""After the second epoch."""
FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ANSWER_LOST, Fault.REQUEST_LOST]


def three_epochs() -> ls.ParquetBackend:
    made = fresh_backend()
    job = start(made)
    for keys in ("ab", "bc", "cd"):
        add(job, *keys)
    return made


def with_hook(
    backend: ls.ParquetBackend, hook: Callable[..., Fault]
) -> tuple[ls.ParquetBackend, FaultyStore]:
    """The same place, seen by a process whose calls are watched."""
    watched = ls.ParquetBackend(backend.url, cache_bytes=0)
    store = FaultyStore(backend.objects(PARENT).store, hook)
    watched._store = store
    return watched, store


def retain(backend: ls.ParquetBackend) -> None:
    """Retention of the parent that keeps the newest epoch only, under the claim that there is."""
    job = backend.objects(PARENT)
    fence = job.read_fence()
    assert fence is not None
    plan = retain_epochs(job, fence.record, RetentionPolicy(1), backend.ambient)
    assert isinstance(plan, RetentionPlan)


def calls_of(act: Callable[[ls.ParquetBackend], object]) -> int:
    watched, store = with_hook(three_epochs(), lambda operation, path: Fault.NONE)
    act(watched)
    return len(store.calls)


def fork_second(backend: ls.ParquetBackend) -> bool:
    """Fork the second epoch. False if retention was faster."""
    try:
        ls.fork(backend, PARENT, TRIAL, 2)
    except NotFoundError:
        return False
    return True


def remember_fork(backend: ls.ParquetBackend, made: list[bool]) -> None:
    made.append(fork_second(backend))


def check_whole_or_absent(backend: ls.ParquetBackend, is_made: bool) -> None:
    retain(backend)
    if is_made:
        assert totals(backend, TRIAL) == STATE
        assert is_sound(backend, TRIAL)
        add(start(backend, TRIAL), "z")
        assert totals(backend, TRIAL) == STATE | {"z": 1}
    else:
        assert objects_of(backend, TRIAL) == set()
        assert backend.tags(PARENT) == ()
    assert is_sound(backend, PARENT)


def test_a_fork_between_any_two_calls_of_retention_is_whole_or_refused() -> None:
    made: list[bool] = []
    for number in range(calls_of(retain)):
        backend = three_epochs()
        watched, _ = with_hook(backend, before_call(number, partial(remember_fork, backend, made)))
        retain(watched)
        check_whole_or_absent(backend, made[-1])
    assert set(made) == {True, False}


def test_retention_between_any_two_calls_of_a_fork_leaves_it_whole_or_refused() -> None:
    made: list[bool] = []
    for number in range(calls_of(fork_second)):
        backend = three_epochs()
        watched, _ = with_hook(backend, before_call(number, partial(retain, backend)))
        made.append(fork_second(watched))
        check_whole_or_absent(backend, made[-1])
    assert set(made) == {True, False}


def test_a_fork_of_a_tagged_epoch_survives_the_deletion_of_the_tag_at_any_moment() -> None:
    def tagged() -> ls.ParquetBackend:
        backend = three_epochs()
        backend.create_tag(PARENT, "sale", 2)
        retain(backend)
        return backend

    def untag_and_retain(backend: ls.ParquetBackend) -> None:
        backend.delete_tag(PARENT, "sale")
        retain(backend)

    watched, store = with_hook(tagged(), lambda operation, path: Fault.NONE)
    ls.fork(watched, PARENT, TRIAL, "sale")
    calls = len(store.calls)
    made: list[bool] = []
    for number in range(calls):
        backend = tagged()
        watched, _ = with_hook(backend, before_call(number, partial(untag_and_retain, backend)))
        made.append(fork_second(watched))
        check_whole_or_absent(backend, made[-1])
    for number in range(2, 20):
        backend = tagged()
        backend.delete_tag(PARENT, "sale")
        watched, _ = with_hook(backend, before_call(number, partial(remember_fork, backend, made)))
        retain(watched)
        check_whole_or_absent(backend, objects_of(backend, TRIAL) != set())
    assert set(made) == {True, False}


def test_a_fork_that_trusts_a_tag_which_is_withdrawn_keeps_what_it_needs() -> None:
    """Somebody tags an epoch that retention is about to delete, and a fork sees the tag before it is gone."""
    backend = three_epochs()
    made: list[bool] = []

    def fork_when_the_boundary_is_read(operation: Operation, path: str) -> Fault:
        if path.endswith("retention.json") and not made:
            remember_fork(backend, made)
        return Fault.NONE

    def tag_when_the_record_is_deleted(operation: Operation, path: str) -> Fault:
        if operation is Operation.DELETE and path.endswith("epochs/0000000002.json") and not made:
            tagging, _ = with_hook(backend, fork_when_the_boundary_is_read)
            with pytest.raises(NotFoundError, match="can no longer be tagged"):
                tagging.create_tag(PARENT, "late", 2)
        return Fault.NONE

    retain(with_hook(backend, tag_when_the_record_is_deleted)[0])
    assert made == [True]
    assert backend.objects(PARENT).list_epochs() == [3]
    check_whole_or_absent(backend, is_made=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fork_that_failed_at_any_call_is_not_started_by_accident_and_can_be_repeated(fault: Fault) -> None:
    for number in range(calls_of(fork_second)):
        backend = three_epochs()
        watched, _ = with_hook(backend, faults_at({number: fault}))
        with suppress(SimulatedCrash, OutcomeUnknownError, StorageUnavailableError):
            ls.fork(watched, PARENT, TRIAL, 2)
        retain(backend)
        if (
            f"{TRIAL}/generation.json" in objects_of(backend, TRIAL)
            and not backend.objects(TRIAL).list_epochs()
        ):
            with pytest.raises(ConflictError, match="a fork that is not complete"):
                start(backend, TRIAL)
        if not backend.objects(TRIAL).read_fence() and not backend.tags(PARENT):
            with pytest.raises(NotFoundError):
                ls.fork(backend, PARENT, TRIAL, 2)
            continue
        parent = start(backend, settings=KEEP_TWO)
        add(parent, "q")
        ls.fork(backend, PARENT, TRIAL, 2)
        assert [tag.fork for tag in backend.tags(PARENT)] == [TRIAL]
        check_whole_or_absent(backend, is_made=True)


def test_of_two_that_fork_different_epochs_into_one_name_exactly_one_does() -> None:
    for number in range(calls_of(fork_second)):
        backend = three_epochs()
        outcomes: list[object] = []

        def other(backend: ls.ParquetBackend = backend, outcomes: list[object] = outcomes) -> None:
            with suppress(ConflictError):
                outcomes.append(ls.fork(backend, PARENT, TRIAL, 3))

        watched, _ = with_hook(backend, before_call(number, other))
        with suppress(ConflictError):
            outcomes.append(ls.fork(watched, PARENT, TRIAL, 2))
        assert len(outcomes) == 1
        assert len(backend.tags(PARENT)) == 1
        assert is_sound(backend, TRIAL)


def test_of_two_that_make_the_same_fork_both_get_it() -> None:
    for number in range(calls_of(fork_second)):
        backend = three_epochs()
        outcomes: list[object] = []

        def other(backend: ls.ParquetBackend = backend, outcomes: list[object] = outcomes) -> None:
            outcomes.append(ls.fork(backend, PARENT, TRIAL, 2))
            add(start(backend, TRIAL), "z")

        watched, _ = with_hook(backend, before_call(number, other))
        outcomes.append(ls.fork(watched, PARENT, TRIAL, 2))
        assert len(outcomes) == 2
        assert len(backend.tags(PARENT)) == 1
        assert totals(backend, TRIAL) == STATE | {"z": 1}
