"""After any history of crashes, zombies and two drivers, a verification finds a sound job sound."""

from __future__ import annotations

import pytest

import lakestate as ls
from lakestate.storage.parallel import run_sequentially
from lakestate.testing.simulation import run, run_seed
from lakestate.testing.simulation.cluster.actors import REFUSED
from lakestate.testing.simulation.cluster.engine import sinks_of
from lakestate.testing.simulation.cluster.process import Process, SimulatedBackend
from lakestate.testing.simulation.cluster.world import JOB_ID, World
from lakestate.verification import VerificationReport

SEEDS = 20


@pytest.mark.slow
def test_a_history_without_damage_verifies_as_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[World, VerificationReport]] = []
    check_the_end = run.check_final_state

    def then_verify(world: World) -> None:
        check_the_end(world)
        process = Process(world, "verifier", "verifier")
        sinks = sinks_of(world, process.direct_client)
        backend = SimulatedBackend(process, world.state)
        with run_sequentially():
            reports.append((world, ls.verify(backend, JOB_ID, sinks=sinks)))

    monkeypatch.setattr(run, "check_final_state", then_verify)
    for seed in range(SEEDS):
        assert run_seed(seed).violation is None
    assert len(reports) == SEEDS
    for world, report in reports:
        # A store that loses an acknowledged part leaves output that cannot be finished.
        assert report.is_clean or world.counts[REFUSED], f"seed {world.seed}: {report}"
        assert report.restorable == tuple(world.monitor.retained_epochs()), f"seed {world.seed}: {report}"
