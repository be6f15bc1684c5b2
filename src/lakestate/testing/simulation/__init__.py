"""A whole job in one thread of control: drivers, subtasks, sinks, compaction and retention as actors.

Everything is driven by one seed: a run can be repeated exactly. See docs/reliability.md.
"""

from lakestate.testing.simulation.faults import FaultKind, FaultRates
from lakestate.testing.simulation.job import SimulatedJob
from lakestate.testing.simulation.run import RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario

__all__ = ["FaultKind", "FaultRates", "RunResult", "Scenario", "SimulatedJob", "run_seed"]
