"""What the rows of a stream mean: final rows, newest values by key, or changes.

An operator or a sink that cannot take a kind refuses it when the pipeline is built: appending updates as if
each were a new row, or counting a row again for each of its updates, would be wrong silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakestate.errors import InvalidInputError

CHANGE = "_change"
"""The column that says what a row of a stream of changes does."""

INSERT, DELETE = "insert", "delete"
BEFORE, AFTER = "update_preimage", "update_postimage"
"""The words of Spark and Delta for the row before and after an update."""


class RowKind(Enum):
    """What a row means."""

    APPEND = "append"
    """Each row is final."""
    UPSERT = "upsert"
    """A row replaces the earlier row of its key."""
    CHANGES = "changes"
    """Rows are inserted, updated and deleted, as the column `_change` says."""


class Emit(Enum):
    """When an operator yields a result."""

    FINAL = "final"
    """Once, when it can no longer change."""
    UPDATES = "updates"
    """In every epoch, the current value of what changed."""
    CHANGES = "changes"
    """In every epoch, what changed, before and after."""

    @classmethod
    def of(cls, emit: Emit | str, where: str) -> Emit:
        """The emission of that name."""
        try:
            return cls(emit)
        except ValueError:
            expected = ", ".join(repr(each.value) for each in cls)
            raise InvalidInputError(
                "unknown emission", object_name=where, found=emit, expected=expected
            ) from None

    @property
    def kind(self) -> RowKind:
        """What the rows mean that are yielded so."""
        return _KINDS[self]


_KINDS = {Emit.FINAL: RowKind.APPEND, Emit.UPDATES: RowKind.UPSERT, Emit.CHANGES: RowKind.CHANGES}


@dataclass(frozen=True, slots=True)
class StreamKind:
    """The kind of a stream's rows, and the key columns by which rows replace each other."""

    kind: RowKind = RowKind.APPEND
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case RowKind.APPEND:
                return "final rows"
            case RowKind.UPSERT:
                return f"updates by {', '.join(self.key)}"
            case RowKind.CHANGES:
                return f"changes by {', '.join(self.key)}"


def require_kind(found: StreamKind, taken: tuple[RowKind, ...], who: str, instead: str | None = None) -> None:
    """Refuse rows of a kind that an operator or sink does not take. `instead` is what else can be done."""
    if found.kind in taken:
        return
    actions = []
    if RowKind.CHANGES in taken and found.kind is RowKind.UPSERT:
        actions.append('pass emit="changes" to the operator that yields them')
    if RowKind.UPSERT in taken and found.kind is RowKind.CHANGES:
        actions.append('pass emit="updates" to the operator that yields them')
    if RowKind.APPEND in taken:
        actions.append("call as_log() first, if each of these rows shall count as a row of its own")
    if instead is not None:
        actions.append(instead)
    raise InvalidInputError(
        f"{who} cannot take rows that change",
        found=str(found),
        expected=" or ".join(_TEXTS[kind] for kind in taken),
        action="; ".join(actions),
    )


_TEXTS = {RowKind.APPEND: "final rows", RowKind.UPSERT: "updates", RowKind.CHANGES: "changes"}
