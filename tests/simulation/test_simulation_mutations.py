"""The tests tested: the protocol is broken on purpose, and the simulator must notice."""

from __future__ import annotations

import pytest
from tests.simulation.commit_mutations import OWN_OUTPUT
from tests.simulation.delivery_mutations import DELIVERY
from tests.simulation.mutations import MUTATIONS, Mutation, seeds_to_find
from tests.simulation.owner_mutations import SHARED_OUTPUT
from tests.simulation.replicated_mutations import REPLICATED
from tests.simulation.silence_mutations import SILENCE
from tests.simulation.snapshot_mutations import OPEN_FILES

# What shows only in one history of a hundred is looked for by `make soak`.
CASES = [
    pytest.param(each, id=str(each), marks=[pytest.mark.soak] if each.is_rare else [])
    for each in (*MUTATIONS, *OWN_OUTPUT, *SHARED_OUTPUT, *REPLICATED, *OPEN_FILES, *SILENCE, *DELIVERY)
]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", CASES)
def test_the_simulator_notices(mutation: Mutation, capsys: pytest.CaptureFixture[str]) -> None:
    found = seeds_to_find(mutation)
    assert found is not None, f"{mutation.seeds_max} seeds did not show: {mutation.name}"
    with capsys.disabled():
        print(f"\n| {mutation.name} | {found[0]} | {found[1].split(':')[0]} |")
