"""The check that a subtask writes only rows of its own keys.

A row in the wrong subtask would be found today and lost by the next rescaling.
"""

from __future__ import annotations

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.values import TaskInfo


def check_owned(found: KeyRange, table: str, task: TaskInfo) -> None:
    """Refuse rows whose routing keys are not all the subtask's."""
    mine = task.key_range
    if not mine.contains(found):
        raise InvalidInputError(
            f"rows of another subtask were put into table {table}",
            object_name=str(task),
            found=f"routing keys {found.first} to {found.last}",
            expected=f"{mine.first} to {mine.last}",
            action="the table's key, or its route_by, must be what the pipeline is keyed by, "
            "with the same types",
        )
