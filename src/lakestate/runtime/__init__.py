"""One subtask of one stage for one epoch, without an engine: restore, process, checkpoint.

Spark's tasks, the operator harness and the simulator run a `SubtaskRun`. A stage consists of steps, which
are operators or sinks. May import `operators`, `sinks`, `coordinator` and everything below.
"""

from lakestate.runtime.sink_step import SinkStep, sink_clean_up, sink_committer, sink_take_over
from lakestate.runtime.steps import ChainLink, OperatorStep, RunningStep, Step, StepScope
from lakestate.runtime.subtask import StagePlan, SubtaskRun

__all__ = [
    "ChainLink",
    "OperatorStep",
    "RunningStep",
    "SinkStep",
    "StagePlan",
    "Step",
    "StepScope",
    "SubtaskRun",
    "sink_clean_up",
    "sink_committer",
    "sink_take_over",
]
