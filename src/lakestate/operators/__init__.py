"""Operators: the stateful steps of a job, which users write.

May import `coordinator`, `tables` and everything below. How a subtask runs an operator is in `runtime`.
"""

from lakestate.operators.context import OperatorContext
from lakestate.operators.operator import (
    Batches,
    Operator,
    TwoInputOperator,
    batches_of,
    follows_event_time,
    has_on_commit,
    state_tables,
)

__all__ = [
    "Batches",
    "Operator",
    "OperatorContext",
    "TwoInputOperator",
    "batches_of",
    "follows_event_time",
    "has_on_commit",
    "state_tables",
]
