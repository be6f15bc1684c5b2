"""Who may publish, and what the store's answer to the creation of the record means."""

from __future__ import annotations

import pytest

from lakestate.protocol.publication import (
    Collected,
    CommitPermit,
    Fenced,
    MayPublish,
    Published,
    Superseded,
    decide_publication,
    decide_to_publish,
    replay_permit,
)
from lakestate.protocol.records import BoundaryRecord, EpochRecord, GenerationRecord
from lakestate.protocol.values import Epoch, Generation, ObjectRef


def fence(generation: int, claim_id: str) -> GenerationRecord:
    return GenerationRecord("job", Generation(generation), claim_id, 1000)


def record(generation: int, attempt: str = "", at_ms: int = 1000) -> EpochRecord:
    manifest = ObjectRef(f"checkpoints/7/manifest{attempt}.pb", 10, 20)
    return EpochRecord("job", Epoch(7), Generation(generation), manifest, at_ms)


def boundary(oldest: int) -> BoundaryRecord:
    return BoundaryRecord("job", Epoch(oldest), Generation(9), "change")


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        pytest.param(fence(5, "mine"), MayPublish(), id="still ours"),
        pytest.param(fence(6, "other"), Fenced(Generation(6)), id="overtaken"),
        pytest.param(fence(5, "other"), Fenced(Generation(5)), id="same number, another claim"),
        pytest.param(fence(6, "mine"), Fenced(Generation(6)), id="our own claim was made again"),
        pytest.param(fence(4, "other"), Fenced(Generation(4)), id="the fence was set back"),
    ],
)
def test_only_the_holder_of_the_fence_may_publish(
    seen: GenerationRecord, decision: MayPublish | Fenced
) -> None:
    assert decide_to_publish(fence(5, "mine"), seen) == decision


OURS = record(5)


@pytest.mark.parametrize(
    ("existing", "passed", "decision"),
    [
        pytest.param(None, None, Published(replay_permit(OURS)), id="created"),
        pytest.param(None, boundary(7), Published(replay_permit(OURS)), id="created, at the boundary"),
        pytest.param(None, boundary(8), Collected(Epoch(8)), id="created after it was collected"),
        pytest.param(OURS, None, Published(replay_permit(OURS)), id="our lost answer was a yes"),
        pytest.param(OURS, boundary(8), Collected(Epoch(8)), id="our lost answer was a yes, too late"),
        pytest.param(record(6), None, Published(replay_permit(record(6))), id="the same manifest"),
        pytest.param(
            record(6, ".b"), None, Fenced(Generation(6)), id="by a higher generation"
        ),
        pytest.param(record(4, ".b"), None, Superseded(record(4, ".b")), id="by a lower generation"),
        pytest.param(record(5, ".b"), None, Superseded(record(5, ".b")), id="by ourselves before"),
    ],
)  # fmt: skip
def test_the_answer_of_the_store_means(
    existing: EpochRecord | None,
    passed: BoundaryRecord | None,
    decision: Published | Superseded | Fenced | Collected,
) -> None:
    assert decide_publication(OURS, existing, passed) == decision


def test_a_permit_cannot_be_made_by_hand() -> None:
    with pytest.raises(AssertionError, match="handed out by a decision"):
        CommitPermit(OURS)
