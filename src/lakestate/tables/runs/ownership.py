"""The check that a subtask writes and looks up only its own keys.

A row in the wrong subtask would be found today and lost by the next rescaling. A lookup in the wrong
subtask would find no row, unless there is only one subtask.
"""

from __future__ import annotations

import numpy as np

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.values import TaskInfo


def check_written_keys(found: KeyRange, table: str, task: TaskInfo) -> None:
    """Refuse rows with routing keys that the subtask does not own."""
    _check(found, f"rows of another subtask were put into table {table}", task)


def check_queried_keys(keys: np.ndarray, table: str, task: TaskInfo) -> None:
    """Refuse to look up routing keys that the subtask does not own. `keys` ascend."""
    if len(keys):
        asked = KeyRange(int(keys[0]), int(keys[-1]))
        _check(asked, f"keys of another subtask were looked up in table {table}", task)


def _check(found: KeyRange, summary: str, task: TaskInfo) -> None:
    mine = task.key_range
    if not mine.contains(found):
        raise InvalidInputError(
            summary,
            object_name=str(task),
            found=f"routing keys {found.first} to {found.last}",
            expected=f"{mine.first} to {mine.last}",
            action="key the table, or its route_by, by what the pipeline is keyed by, with the same types",
        )
