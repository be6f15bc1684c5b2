"""Compaction: neighbours only, a bounded number of runs, and a row is rewritten a few times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.errors import InvalidInputError
from lakestate.protocol.compaction import CompactionPlan, CompactionPolicy, plan_compaction

POLICY = CompactionPolicy(files_min=4, size_floor_bytes=1)
DEFAULT = CompactionPolicy(size_floor_bytes=1)
POLICIES = st.builds(
    lambda low, more, ratio, floor: CompactionPolicy(low, low + more, ratio, floor),
    st.integers(2, 6),
    st.integers(0, 10),
    st.sampled_from([0.5, 1.0, 1.5, 3.0]),
    st.sampled_from([0, 1, 100]),
)
SIZES = st.lists(st.integers(0, 10_000), max_size=40)


@dataclass(frozen=True)
class File:
    size_bytes: int
    epoch: int


def of_sizes(sizes: list[int]) -> list[File]:
    """Files of these sizes, newest first, one for each epoch."""
    return [File(size, len(sizes) - place) for place, size in enumerate(sizes)]


def compacted(sizes: list[int], policy: CompactionPolicy) -> tuple[list[int], int]:
    """The runs after all merges that are worth doing, and the bytes that were written for it."""
    written = 0
    while (plan := plan_compaction(of_sizes(sizes), policy)) is not None:
        merged = sum(sizes[plan.start : plan.stop])
        sizes = [*sizes[: plan.start], merged, *sizes[plan.stop :]]
        written += merged
    return sizes, written


@pytest.mark.parametrize(
    ("sizes", "plan"),
    [
        ([], None),
        ([10], None),
        ([10, 10, 10], None),
        ([10, 10, 10, 10], CompactionPlan(0, 4, reaches_oldest=True)),
        ([10, 10, 10, 10, 900], CompactionPlan(0, 4, reaches_oldest=False)),
        ([10, 10, 10, 40], CompactionPlan(0, 4, reaches_oldest=True)),
        ([10, 10, 10, 900], None),
        ([1, 900, 10, 10, 10, 10, 9000], CompactionPlan(1, 6, reaches_oldest=False)),
        ([10 * 4**n for n in range(17)], CompactionPlan(0, 2, reaches_oldest=False)),
        ([10 * 4**n for n in range(18)], CompactionPlan(0, 3, reaches_oldest=False)),
    ],
)
def test_the_merge_to_do_is(sizes: list[int], plan: CompactionPlan | None) -> None:
    assert plan_compaction(of_sizes(sizes), POLICY) == plan


@given(SIZES, POLICIES)
def test_a_plan_is_a_span_of_neighbours_worth_merging(sizes: list[int], policy: CompactionPolicy) -> None:
    plan = plan_compaction(of_sizes(sizes), policy)
    if plan is None:
        assert len(sizes) <= policy.files_max
        return
    assert 0 <= plan.start < plan.stop <= len(sizes)
    assert plan.reaches_oldest == (plan.stop == len(sizes))
    enough = plan.stop - plan.start >= policy.files_min
    assert enough or (plan.stop - plan.start >= 2 and len(sizes) > policy.files_max)


@given(SIZES, POLICIES)
def test_merging_until_nothing_is_worth_it_ends_within_the_bound(
    sizes: list[int], policy: CompactionPolicy
) -> None:
    after, _ = compacted(sizes, policy)
    assert len(after) <= policy.files_max
    assert sum(after) == sum(sizes)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200))
def test_the_number_of_runs_stays_bounded_while_runs_of_any_size_arrive(arriving: list[int]) -> None:
    sizes: list[int] = []
    for size in arriving:
        sizes, _ = compacted([size, *sizes], POLICY)
        assert len(sizes) <= POLICY.files_max


def test_the_sizes_of_tiny_runs_do_not_matter() -> None:
    policy = CompactionPolicy(files_min=4, size_floor_bytes=1000)
    assert plan_compaction(of_sizes([1, 900, 3, 700]), policy) == CompactionPlan(0, 4, reaches_oldest=True)


@pytest.mark.parametrize(
    ("epochs", "plan"),
    [
        ([3, 3, 3, 3], None),
        ([4, 4, 3, 3], None),
        ([4, 3, 2, 2], CompactionPlan(0, 4, reaches_oldest=True)),
        ([5, 5, 5, 4, 3], CompactionPlan(0, 5, reaches_oldest=True)),
    ],
)
def test_a_group_waits_for_the_least_number_of_epochs(epochs: list[int], plan: CompactionPlan | None) -> None:
    policy = CompactionPolicy(files_min=4, epochs_min=3, size_floor_bytes=1)
    assert plan_compaction([File(10, epoch) for epoch in epochs], policy) == plan


def test_too_many_files_are_merged_whatever_their_epochs() -> None:
    policy = CompactionPolicy(files_min=2, files_max=4, epochs_min=9)
    assert plan_compaction([File(10, 1)] * 5, policy) == CompactionPlan(0, 2, reaches_oldest=False)


def amplification(arriving: list[int], policy: CompactionPolicy = POLICY) -> tuple[float, int]:
    """How often a byte was written, its first time included, and the most runs there were."""
    sizes: list[int] = []
    written, most = 0, 0
    for size in arriving:
        sizes, merged = compacted([size, *sizes], policy)
        written += size + merged
        most = max(most, len(sizes))
    return written / sum(arriving), most


@pytest.mark.parametrize("count", [100, 1_000, 10_000])
def test_equal_appends_are_rewritten_a_logarithmic_number_of_times(count: int) -> None:
    rewritten, runs = amplification([1000] * count)
    assert rewritten <= 1 + math.log2(count)
    assert runs <= 2 + math.log2(count)


@pytest.mark.parametrize("count", [100, 1_000, 10_000])
def test_by_default_equal_appends_are_rewritten_less_often_than_in_groups_of_four(count: int) -> None:
    rewritten, runs = amplification([1000] * count, DEFAULT)
    assert rewritten <= amplification([1000] * count)[0]
    assert runs <= DEFAULT.files_max


@pytest.mark.parametrize("seed", range(5))
def test_appends_of_mixed_sizes_are_rewritten_a_logarithmic_number_of_times(seed: int) -> None:
    chance = random.Random(seed)
    rewritten, runs = amplification([int(chance.lognormvariate(10, 1)) + 1 for _ in range(3_000)])
    assert rewritten <= 2 + math.log2(3_000)
    assert runs <= POLICY.files_max


@pytest.mark.parametrize(
    "make",
    [
        lambda: CompactionPolicy(files_min=1),
        lambda: CompactionPolicy(files_min=5, files_max=4),
        lambda: CompactionPolicy(size_ratio=0),
        lambda: CompactionPolicy(epochs_min=0),
    ],
)
def test_a_policy_that_cannot_work_is_refused(make: object) -> None:
    with pytest.raises(InvalidInputError, match="not a compaction policy"):
        make()  # type: ignore[operator]
