"""What distinguishes the types of state tables, as traits that other code asks for. Pure.

A type is stored by its name only. Its traits belong to the code that registers the name, so no
other code compares types: it asks `table_type.is_replicated`, not whether the type is `GLOBAL_KEYED`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakestate.protocol.names import require_name


@dataclass(frozen=True, slots=True)
class TableType:
    """A type of state table.

    >>> TableType("latest", has_tombstones=True).is_replicated
    False
    """

    name: str
    """What metadata and data files call it. It never changes once state is stored."""
    is_replicated: bool = False
    """Every subtask reads the files of all subtasks; otherwise each reads those of its key range."""
    has_tombstones: bool = False
    """A stored row may say that its key is removed."""
    is_append_only: bool = False
    """Rows are never overwritten: a data file may hold many rows of one key."""
    is_ordered_by_time: bool = False
    """Rows are found and dropped by their time column, so a migration cannot change their times."""
    is_of_one_epoch: bool = False
    """Files belong to the epoch that wrote them: no later one has them, and there is nothing to merge."""

    def __post_init__(self) -> None:
        require_name("table type", self.name)

    def __str__(self) -> str:
        return self.name


GLOBAL_KEYED = TableType("global_keyed", is_replicated=True, has_tombstones=True)
KEYED = TableType("keyed", has_tombstones=True)
TIME_KEY = TableType("time_key", is_append_only=True, is_ordered_by_time=True)
