"""What a starting driver does, as a table of cases, and that there is an answer to everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.protocol.publication import Fenced, replay_permit
from lakestate.protocol.records import BoundaryRecord, EpochRecord
from lakestate.protocol.resolve import (
    Damaged,
    ObservedEpoch,
    Refuse,
    ReplayCommit,
    Resolution,
    Resume,
    StartFresh,
    decide_recovery,
)
from lakestate.protocol.values import Epoch, Generation, ObjectRef

MINE = Generation(5)
BROKEN = Damaged("store/job/checkpoints/7/manifest.pb", "it is missing")
UNREADABLE = Damaged("store/job/epochs/0000000007.json", "it does not match its checksum")
BOUNDARY = BoundaryRecord("job", Epoch(3), MINE, "change")
GONE = Damaged("job/epochs/0000000003.json", "the retention boundary names it, but it is missing")


def record(epoch: int, generation: int = 5) -> EpochRecord:
    manifest = ObjectRef(f"checkpoints/{epoch}/manifest.pb", 10, 20)
    return EpochRecord("job", Epoch(epoch), Generation(generation), manifest, 1000)


def good(epoch: int, generation: int = 5) -> ObservedEpoch:
    return ObservedEpoch(Epoch(epoch), record(epoch, generation), committed=True)


def uncommitted(epoch: int, generation: int = 5) -> ObservedEpoch:
    return ObservedEpoch(Epoch(epoch), record(epoch, generation))


def broken(epoch: int, generation: int = 5) -> ObservedEpoch:
    return ObservedEpoch(Epoch(epoch), record(epoch, generation), BROKEN, committed=True)


def unreadable(epoch: int) -> ObservedEpoch:
    return ObservedEpoch(Epoch(epoch), UNREADABLE)


@pytest.mark.parametrize(
    ("observed", "boundary", "decision"),
    [
        pytest.param([], None, StartFresh(), id="nothing was ever published"),
        pytest.param([], BOUNDARY, Refuse(Epoch(3), GONE, None), id="all records are gone"),
        pytest.param([good(7)], None, Resume(record(7)), id="committed"),
        pytest.param([good(7, 1)], BOUNDARY, Resume(record(7, 1)), id="committed by an earlier driver"),
        pytest.param([uncommitted(7)], None, ReplayCommit(replay_permit(record(7))), id="not committed"),
        pytest.param(
            [uncommitted(7, 4)],
            None,
            ReplayCommit(replay_permit(record(7, 4))),
            id="not committed by an earlier driver",
        ),
        pytest.param([good(7, 6)], None, Fenced(Generation(6)), id="overtaken"),
        pytest.param([uncommitted(7, 6)], None, Fenced(Generation(6)), id="overtaken, not committed"),
        pytest.param([broken(7, 6)], None, Fenced(Generation(6)), id="overtaken, manifest broken"),
        pytest.param([broken(7)], None, Refuse(Epoch(7), BROKEN, None), id="broken, nothing older"),
        pytest.param([broken(7), good(6)], None, Refuse(Epoch(7), BROKEN, Epoch(6)), id="broken, older good"),
        pytest.param(
            [broken(7), unreadable(6), broken(5), uncommitted(4)],
            None,
            Refuse(Epoch(7), BROKEN, Epoch(4)),
            id="the newest good one is offered",
        ),
        pytest.param([unreadable(7)], None, Refuse(Epoch(7), UNREADABLE, None), id="record unreadable"),
        pytest.param(
            [unreadable(7), good(6)],
            BOUNDARY,
            Refuse(Epoch(7), UNREADABLE, Epoch(6)),
            id="record unreadable, older",
        ),
    ],
)
def test_recovery_is_this_table(
    observed: list[ObservedEpoch], boundary: BoundaryRecord | None, decision: Resolution
) -> None:
    assert decide_recovery(MINE, observed, boundary) == decision


GENERATIONS = st.integers(1, 4).map(Generation)


@st.composite
def observations(draw: st.DrawFn) -> list[ObservedEpoch]:
    epochs = sorted(draw(st.sets(st.integers(1, 9), max_size=5)), reverse=True)
    return [
        ObservedEpoch(
            Epoch(epoch),
            draw(st.just(UNREADABLE) | GENERATIONS.map(lambda g, e=epoch: record(e, g))),
            draw(st.none() | st.just(BROKEN)),
            draw(st.booleans()),
        )
        for epoch in epochs
    ]


@given(GENERATIONS, observations(), st.none() | st.just(BOUNDARY))
def test_there_is_an_answer_to_everything_and_it_never_goes_back_silently(
    mine: Generation, observed: list[ObservedEpoch], boundary: BoundaryRecord | None
) -> None:
    decision = decide_recovery(mine, observed, boundary)
    match decision:
        case StartFresh():
            assert (observed, boundary) == ([], None)
        case Resume(resumed):
            assert (resumed, True, None) == (observed[0].record, observed[0].committed, observed[0].damage)
            assert resumed.generation <= mine
        case ReplayCommit(permit):
            assert (permit.record, False) == (observed[0].record, observed[0].committed)
            assert permit.record.generation <= mine
        case Fenced(by):
            assert by > mine
        case Refuse(_, _, offered):
            assert offered in {None, *(epoch.epoch for epoch in observed if epoch.damage is None)}
