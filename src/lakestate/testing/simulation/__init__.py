"""Deterministic simulation of a whole job: drivers, subtasks, sinks, compaction and retention as actors.

One seed determines a run, so a run can be repeated exactly. `cluster/` has the actors and the
scheduler, `stores/` the object stores in memory, `checks/` what must hold, and `campaigns/` runs many
seeds and reduces failures. `python -m lakestate.testing.simulation` is the command line. May import
every layer but `spark`, and the tools of `testing`. See docs/reliability.md.
"""

from lakestate.testing.simulation.faults import FaultKind, FaultRates
from lakestate.testing.simulation.job import SimulatedJob
from lakestate.testing.simulation.promises import BrokenPromiseError, Promise
from lakestate.testing.simulation.run import RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario

__all__ = [
    "BrokenPromiseError",
    "FaultKind",
    "FaultRates",
    "Promise",
    "RunResult",
    "Scenario",
    "SimulatedJob",
    "run_seed",
]
