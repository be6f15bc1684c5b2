"""What a manifest says of operators, made from the checkpoints that all subtasks reported."""

from __future__ import annotations

from collections.abc import Sequence

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import OperatorEntry
from lakestate.protocol.values import Epoch
from lakestate.tables.manager import SubtaskCheckpoint


def operator_entries(epoch: Epoch, checkpoints: Sequence[SubtaskCheckpoint]) -> tuple[OperatorEntry, ...]:
    """The operators of a manifest. Raises InvalidInputError unless each subtask reported exactly once."""
    operators: dict[str, list[SubtaskCheckpoint]] = {}
    for checkpoint in checkpoints:
        operators.setdefault(checkpoint.operator_id, []).append(checkpoint)
    return tuple(_operator_entry(epoch, name, parts) for name, parts in sorted(operators.items()))


def _operator_entry(epoch: Epoch, operator_id: str, parts: Sequence[SubtaskCheckpoint]) -> OperatorEntry:
    parallelism = parts[0].parallelism
    indices = sorted(part.entry.subtask_index for part in parts)
    if (
        indices != list(range(parallelism))
        or {part.parallelism for part in parts} != {parallelism}
        or {part.epoch for part in parts} != {epoch}
    ):
        raise InvalidInputError(
            f"epoch {epoch} is not complete for operator {operator_id}",
            found=f"subtasks {indices} of epochs {sorted({part.epoch for part in parts})}",
            expected=f"each of the {parallelism} subtasks once, of epoch {epoch}",
            action="run the epoch again from the last published one",
        )
    watermarks = [part.watermark_us for part in parts if part.watermark_us is not None]
    return OperatorEntry(
        operator_id=operator_id,
        parallelism=parallelism,
        subtasks=tuple(part.entry for part in sorted(parts, key=lambda part: part.entry.subtask_index)),
        watermark_us=min(watermarks) if len(watermarks) == len(parts) else None,
    )
