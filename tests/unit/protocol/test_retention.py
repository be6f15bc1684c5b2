"""Retention never lists what is needed, what is newer than the boundary, or what is not ours."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.errors import InvalidInputError
from lakestate.protocol.paths import BOUNDARY, FENCE, ObjectKind, Paths, parse_object_name
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.retention import (
    RetentionFacts,
    RetentionPlan,
    RetentionPolicy,
    RetentionRefused,
    next_boundary,
    plan_retention,
)
from lakestate.protocol.values import Epoch

PATHS = Paths("job")
EPOCHS = [Epoch(number) for number in range(1, 9)]
FOREIGN = ["notes.txt", "checkpoints/1/notes.txt", "checkpoints/001/manifest.pb", "epochs/1.json"]


def data(epoch: int, name: str = "a") -> str:
    return PATHS.data(Epoch(epoch), "op", "users", 0, name)


def metadata(epoch: int) -> str:
    return PATHS.subtask_metadata(Epoch(epoch), "op", 0)


def own(epoch: int) -> list[str]:
    number = Epoch(epoch)
    return [PATHS.epoch_record(number), PATHS.manifest(number), PATHS.commit_marker(number), metadata(epoch)]


def test_everything_is_classified_and_records_go_first() -> None:
    tag = PATHS.tag("keep")
    orphans = [PATHS.manifest(Epoch(1), "b"), data(3, "orphan")]
    objects = [FENCE, BOUNDARY, tag, *FOREIGN, *orphans]
    objects += [path for epoch in (1, 2, 3, 4) for path in [*own(epoch), data(epoch)]]
    references = {Epoch(2): {*own(2), data(2)}, Epoch(4): {*own(4), data(4), data(3), metadata(3)}}
    facts = RetentionFacts(Epoch(4), EPOCHS[:4], {Epoch(2)}, references, objects)
    first = {PATHS.epoch_record(Epoch(1)), PATHS.epoch_record(Epoch(3))}
    then = {path for epoch in (1, 3) for path in own(epoch)} - first - {metadata(3)} | {data(1), *orphans}
    assert plan_retention(facts) == RetentionPlan(
        Epoch(4),
        delete_first=tuple(sorted(first)),
        delete_then=tuple(sorted(then)),
        kept=tuple(sorted({*objects} - first - then - {*FOREIGN})),
        foreign=tuple(sorted(FOREIGN)),
    )


def test_an_object_of_an_epoch_in_flight_is_kept_though_nothing_needs_it() -> None:
    facts = RetentionFacts(Epoch(4), [Epoch(4)], (), {Epoch(4): own(4)}, [*own(4), data(4), data(5), data(9)])
    plan = plan_retention(facts)
    assert isinstance(plan, RetentionPlan)
    assert (plan.delete_first, plan.delete_then) == ((), ())


@pytest.mark.parametrize(
    ("current", "published", "keep", "wanted"),
    [
        (None, [], 1, None),
        (None, [1, 2], 3, None),
        (None, [1, 2, 3], 3, 1),
        (None, [1, 2, 3, 4], 3, 2),
        (2, [2, 3, 4], 3, None),
        (2, [3, 1, 5, 4], 1, 5),
        (5, [1, 2, 3, 4, 5], 3, None),
        (None, [3, 7, 9], 2, 7),
    ],
)
def test_the_boundary_moves_to_the_oldest_epoch_kept_and_never_back(
    current: int | None, published: list[int], keep: int, wanted: int | None
) -> None:
    found = next_boundary(
        None if current is None else Epoch(current),
        [Epoch(number) for number in published],
        RetentionPolicy(keep),
    )
    assert found == wanted


@pytest.mark.parametrize(
    ("current", "published", "in_flight", "wanted"),
    [
        (None, [1, 2, 3, 4, 5], None, 5),
        (None, [1, 2, 3, 4, 5], 6, 5),
        (None, [1, 2, 3, 4, 5], 3, 3),
        (2, [2, 3, 4, 5], 2, None),
        (None, [2, 4, 5], 3, 2),
        (None, [4, 5], 3, 4),
    ],
)
def test_the_boundary_waits_for_a_merge_that_is_not_swapped_in(
    current: int | None, published: list[int], in_flight: int | None, wanted: int | None
) -> None:
    found = next_boundary(
        None if current is None else Epoch(current),
        [Epoch(number) for number in published],
        RetentionPolicy(1),
        None if in_flight is None else Epoch(in_flight),
    )
    assert found == wanted


def test_a_boundary_after_everything_published_deletes_nothing() -> None:
    facts = RetentionFacts(Epoch(9), [Epoch(4)], (), {}, own(4))
    assert plan_retention(facts) == RetentionRefused((Damaged("epoch 9", "no published epoch would remain"),))


def test_keeping_no_epoch_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one epoch"):
        RetentionPolicy(0)


@dataclass(frozen=True, slots=True)
class World:
    """A job with any history, any references and any litter."""

    facts: RetentionFacts
    damaged: frozenset[Epoch]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    published = draw(st.sets(st.sampled_from(EPOCHS)))
    tagged = draw(st.sets(st.sampled_from(EPOCHS), max_size=3))
    boundary = draw(st.sampled_from(EPOCHS))
    files = [data(epoch, name) for epoch in range(1, 10) for name in "ab"] + [
        metadata(n) for n in range(1, 10)
    ]
    damaged = draw(st.sets(st.sampled_from(EPOCHS), max_size=1) if draw(st.booleans()) else st.just(set()))
    unread = draw(st.sets(st.sampled_from(EPOCHS), max_size=1) if draw(st.booleans()) else st.just(set()))
    references = {
        epoch: Damaged(f"manifest of {epoch}", "broken")
        if epoch in damaged
        else frozenset([*own(epoch), *draw(st.sets(st.sampled_from(files), max_size=6))])
        for epoch in published - unread
    }
    litter = draw(st.sets(st.sampled_from([*files, *FOREIGN, FENCE, BOUNDARY, PATHS.tag("t")])))
    objects = litter.union(*(own(epoch) for epoch in published)).union(
        *(known for known in references.values() if not isinstance(known, Damaged))
    )
    facts = RetentionFacts(boundary, published, tagged, references, objects)
    return World(facts, frozenset(damaged | unread))


@given(worlds())
def test_no_plan_ever_lists_what_must_stay(world: World) -> None:
    facts = world.facts
    plan = plan_retention(facts)
    if isinstance(plan, RetentionRefused):
        assert plan.damages
        return
    deleted = {*plan.delete_first, *plan.delete_then}
    needed = {path for epoch in facts.retained for path in facts.references[epoch]}  # type: ignore[union-attr]
    assert deleted & needed == set()
    assert {
        path for path in deleted if (parse_object_name(path).epoch or facts.boundary) >= facts.boundary
    } == set()
    assert deleted & {*FOREIGN, FENCE, BOUNDARY, PATHS.tag("t")} == set()
    assert sorted([*deleted, *plan.kept, *plan.foreign]) == sorted(facts.objects)
    assert {parse_object_name(path).kind for path in plan.delete_first} <= {ObjectKind.EPOCH_RECORD}
    assert ObjectKind.EPOCH_RECORD not in {parse_object_name(path).kind for path in plan.delete_then}


@given(worlds())
def test_nothing_is_deleted_while_anything_retained_cannot_be_read(world: World) -> None:
    refused = isinstance(plan_retention(world.facts), RetentionRefused)
    nothing_remains = all(epoch < world.facts.boundary for epoch in world.facts.published)
    assert refused == (bool(world.facts.retained & world.damaged) or nothing_remains)


@given(worlds())
def test_what_nobody_needs_before_the_boundary_is_deleted(world: World) -> None:
    facts = world.facts
    plan = plan_retention(facts)
    if isinstance(plan, RetentionRefused):
        return
    needed = {path for epoch in facts.retained for path in facts.references[epoch]}  # type: ignore[union-attr]
    old = {
        path for path in facts.objects if (parse_object_name(path).epoch or facts.boundary) < facts.boundary
    }
    kept_records = {PATHS.epoch_record(epoch) for epoch in facts.tagged}
    assert {*plan.delete_first, *plan.delete_then} == old - needed - kept_records
