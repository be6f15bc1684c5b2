"""Jobs that are forked and read by registered readers while they run, go back, retain and crash."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.simulation.forks.fork_mutations import FORKS
from tests.simulation.mutations import Mutation

from lakestate.testing.simulation import RunResult, Scenario, run_seed
from lakestate.testing.simulation.random_streams import random_stream

SEEDS_MAX = 200


def run(seed: int) -> RunResult:
    """A history with many epochs, forks of them, and readers that keep some."""
    drawn = Scenario.draw(random_stream(seed, "scenario"))
    settings = {"rows": 24, "rows_per_epoch": 4, "tags": 2, "keep_epochs": 1, "loses_part": False}
    return run_seed(seed, scenario=replace(drawn, forks=2, change_readers=1, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(6, 30), marks=pytest.mark.full)], ids=["some", "more"]
)
def test_nothing_that_a_fork_or_a_reader_needs_is_lost(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed)
        assert result.violation is None, f"seed {seed}: {result.violation}"
        counts += result.counts
    assert min(counts["forks"], counts["forks of forks"], counts["changes read"]) >= len(seeds) // 2


@pytest.mark.full
@pytest.mark.parametrize("mutation", [pytest.param(each, id=str(each)) for each in FORKS])
def test_the_simulator_notices(mutation: Mutation) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        found = next((seed for seed in range(SEEDS_MAX) if run(seed).violation is not None), None)
    assert found is not None, f"{SEEDS_MAX} seeds did not show: {mutation.name}"
