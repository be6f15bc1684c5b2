"""An operator's `on_commit` as the driver calls it."""

from __future__ import annotations

from typing import Any

from lakestate.coordinator.commit import OperatorCommitter
from lakestate.errors import InvalidInputError
from lakestate.operators.operator import Operator
from lakestate.runtime.steps import fresh_copy


def operator_committer(operator: Operator) -> OperatorCommitter:
    """What the driver calls to commit an epoch of an operator.

    All calls of a driver are made on one copy, so that `on_commit` can keep a connection on `self`. The
    declared operator stays as it is: subtasks are made from it.
    """
    return OperatorCommitter(
        fresh_copy(operator, {name: _NoView(name) for name in operator.tables()}).on_commit
    )


class _NoView:
    """In place of a view: on the driver there is no state."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidInputError(
            "on_commit runs on the driver, where an operator has no state",
            object_name=f"table {self._table}",
            action="put what on_commit needs into the commit data",
        )
