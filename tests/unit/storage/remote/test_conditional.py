"""Conditional writes against a scripted store: every answer that can be lost, and what is said."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lakestate.config import RetryPolicy
from lakestate.errors import InvalidInputError, LakestateError, OutcomeUnknownError, StorageUnavailableError
from lakestate.storage.remote.conditional import ConditionalWrite, ObservedObject
from lakestate.storage.remote.errors import ConditionFailedError
from lakestate.storage.retry import Applied, Retrier, TransientFault
from lakestate.storage.store import (
    AlreadyExists,
    Created,
    Data,
    StoredObject,
    SwapConflict,
    Swapped,
    Version,
)

OURS, THEIRS = "our-id", "their-id"
EXPECTED = Version("expected")
WRITTEN = Version("written")
FOUND = StoredObject(b"found", Version("found"))
BY_US, BY_THEM = ObservedObject(FOUND, OURS), ObservedObject(FOUND, THEIRS)
UNCHANGED = ObservedObject(StoredObject(b"before", EXPECTED), THEIRS)

LOST = TransientFault("reset", Applied.MAYBE)
REFUSED = TransientFault("503", Applied.NO)
FAILED = ConditionFailedError("412")
DENIED = InvalidInputError("denied")

Step = Version | ObservedObject | Exception | None


@dataclass
class Script:
    """Answers to writes and looks, in turn. The last of each is repeated."""

    writes: list[Step]
    looks: list[Step] = field(default_factory=list)
    write_ids: list[str] = field(default_factory=list)

    def write(self, data: Data, write_id: str, expected: Version | None) -> Version:
        self.write_ids.append(write_id)
        step = self.writes.pop(0) if len(self.writes) > 1 else self.writes[0]
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, Version)
        return step

    def look(self) -> ObservedObject | None:
        step = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(step, Exception):
            raise step
        assert step is None or isinstance(step, ObservedObject)
        return step


def retrier() -> Retrier:
    now_s = [0.0]

    def sleep_s(seconds: float) -> None:
        now_s[0] += seconds

    return Retrier(
        RetryPolicy(deadline_ms=1000), clock_s=lambda: now_s[0], sleep_s=sleep_s, share=lambda: 0.0
    )


def conditional(script: Script) -> ConditionalWrite:
    return ConditionalWrite(script, "store/object", b"data", OURS)


@pytest.mark.parametrize(
    ("writes", "looks", "outcome"),
    [
        ([WRITTEN], [], Created(WRITTEN)),
        ([FAILED], [BY_THEM], AlreadyExists(FOUND)),
        ([LOST, WRITTEN], [], Created(WRITTEN)),
        ([LOST, FAILED], [BY_US], Created(FOUND.version)),
        ([LOST, FAILED], [BY_THEM], AlreadyExists(FOUND)),
        ([REFUSED, FAILED], [BY_THEM], AlreadyExists(FOUND)),
        ([REFUSED, REFUSED, WRITTEN], [], Created(WRITTEN)),
        ([FAILED, WRITTEN], [None], Created(WRITTEN)),
        ([FAILED], [LOST, BY_THEM], AlreadyExists(FOUND)),
        ([LOST, FAILED], [LOST, LOST, BY_US], Created(FOUND.version)),
        ([LOST], [BY_US], Created(FOUND.version)),
        ([LOST], [BY_THEM], AlreadyExists(FOUND)),
        ([LOST, DENIED], [BY_US], Created(FOUND.version)),
    ],
)
def test_a_create_ends_in_what_the_write_id_proves(
    writes: list[Step], looks: list[Step], outcome: Created | AlreadyExists
) -> None:
    assert conditional(Script(writes, looks)).create(retrier()) == outcome


@pytest.mark.parametrize(
    ("writes", "looks", "error"),
    [
        ([REFUSED], [], StorageUnavailableError),
        ([DENIED], [], InvalidInputError),
        ([FAILED], [REFUSED], StorageUnavailableError),
        ([LOST], [None], OutcomeUnknownError),
        ([LOST], [LOST], OutcomeUnknownError),
        ([LOST, REFUSED], [REFUSED], OutcomeUnknownError),
        ([LOST, DENIED], [DENIED], OutcomeUnknownError),
        ([LOST, FAILED], [None], OutcomeUnknownError),
    ],
)
def test_a_create_that_cannot_be_verified_is_unknown_only_if_an_answer_was_lost(
    writes: list[Step], looks: list[Step], error: type[LakestateError]
) -> None:
    with pytest.raises(error) as caught:
        conditional(Script(writes, looks)).create(retrier())
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("writes", "looks", "outcome"),
    [
        ([WRITTEN], [], Swapped(WRITTEN)),
        ([FAILED], [BY_THEM], SwapConflict(FOUND)),
        ([FAILED], [None], SwapConflict(None)),
        ([REFUSED, FAILED], [BY_THEM], SwapConflict(FOUND)),
        ([LOST, WRITTEN], [], Swapped(WRITTEN)),
        ([LOST, FAILED], [BY_US], Swapped(FOUND.version)),
        ([LOST, FAILED, WRITTEN], [UNCHANGED], Swapped(WRITTEN)),
        ([FAILED, WRITTEN], [UNCHANGED], Swapped(WRITTEN)),
        ([LOST], [BY_US], Swapped(FOUND.version)),
        ([REFUSED, FAILED], [BY_US], Swapped(FOUND.version)),
    ],
)
def test_a_swap_ends_in_what_the_write_id_proves(
    writes: list[Step], looks: list[Step], outcome: Swapped | SwapConflict
) -> None:
    assert conditional(Script(writes, looks)).swap(retrier(), EXPECTED) == outcome


@pytest.mark.parametrize(
    ("writes", "looks", "error"),
    [
        ([REFUSED], [], StorageUnavailableError),
        ([FAILED], [LOST], StorageUnavailableError),
        ([LOST, FAILED], [BY_THEM], OutcomeUnknownError),
        ([LOST, FAILED], [None], OutcomeUnknownError),
        ([LOST], [UNCHANGED], OutcomeUnknownError),
        ([LOST], [LOST], OutcomeUnknownError),
        ([LOST], [BY_THEM], OutcomeUnknownError),
    ],
)
def test_a_swap_that_cannot_be_verified_is_unknown_only_if_an_answer_was_lost(
    writes: list[Step], looks: list[Step], error: type[LakestateError]
) -> None:
    with pytest.raises(error) as caught:
        conditional(Script(writes, looks)).swap(retrier(), EXPECTED)
    assert type(caught.value) is error


def test_every_attempt_carries_the_same_write_id() -> None:
    script = Script([LOST, REFUSED, LOST, WRITTEN])
    conditional(script).create(retrier())
    assert script.write_ids == [OURS] * 4
