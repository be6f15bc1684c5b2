"""The check that a subtask writes rows of its own keys only, and asks for no others.

A row in the wrong subtask would be found today and lost by the next rescaling. A question in the
wrong subtask would be answered with "no such row", unless there is only one subtask.
"""

from __future__ import annotations

import numpy as np

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.values import TaskInfo


def check_written_keys(found: KeyRange, table: str, task: TaskInfo) -> None:
    """Refuse rows whose routing keys are not all the subtask's."""
    _check(found, f"rows of another subtask were put into table {table}", task)


def check_queried_keys(keys: np.ndarray, table: str, task: TaskInfo) -> None:
    """Refuse to look for routing keys, which ascend, that are not all the subtask's."""
    if len(keys):
        asked = KeyRange(int(keys[0]), int(keys[-1]))
        _check(asked, f"keys of another subtask were asked of table {table}", task)


def _check(found: KeyRange, summary: str, task: TaskInfo) -> None:
    mine = task.key_range
    if not mine.contains(found):
        raise InvalidInputError(
            summary,
            object_name=str(task),
            found=f"routing keys {found.first} to {found.last}",
            expected=f"{mine.first} to {mine.last}",
            action="the table's key, or its route_by, must be what the pipeline is keyed by, "
            "with the same types",
        )
