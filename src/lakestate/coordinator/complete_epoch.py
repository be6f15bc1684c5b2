"""What a manifest says of operators, made from the checkpoints that all subtasks reported."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lakestate.coordinator.epoch_plan import encode_commit_parts
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import (
    CommitPart,
    CompletionStatus,
    OperatorEntry,
    SinkPreCommit,
    SubtaskEntry,
)
from lakestate.protocol.values import Epoch
from lakestate.tables.manager import SubtaskCheckpoint


def operator_entries(epoch: Epoch, checkpoints: Sequence[SubtaskCheckpoint]) -> tuple[OperatorEntry, ...]:
    """The operators of a manifest. Raises InvalidInputError unless each subtask reported exactly once."""
    operators: dict[str, list[SubtaskCheckpoint]] = {}
    for checkpoint in checkpoints:
        operators.setdefault(checkpoint.operator_id, []).append(checkpoint)
    return tuple(_operator_entry(epoch, name, parts) for name, parts in sorted(operators.items()))


def pre_commits_of(
    epoch: Epoch, checkpoints: Sequence[SubtaskCheckpoint], committable: Collection[str]
) -> tuple[SinkPreCommit, ...]:
    """One pre-commit for each sink or operator whose subtasks left something to commit.

    Raises InvalidInputError for one that cannot be committed: once published, the epoch could never be
    finished.
    """
    parts: dict[str, list[CommitPart]] = {}
    for checkpoint in sorted(checkpoints, key=lambda each: each.entry.subtask_index):
        for table, data in sorted(checkpoint.commit_data.items()):
            part = CommitPart(checkpoint.entry.subtask_index, table, data)
            parts.setdefault(checkpoint.operator_id, []).append(part)
    unknown = sorted(parts.keys() - set(committable))
    if unknown:
        tables = sorted({f"{name}.{part.table}" for name in unknown for part in parts[name]})
        raise InvalidInputError(
            f"subtasks set commit data in epoch {epoch}, and nothing commits it",
            object_name=", ".join(tables),
            expected="an operator with on_commit, or a sink",
            action="define on_commit; nothing was published",
        )
    return tuple(SinkPreCommit(name, encode_commit_parts(found)) for name, found in parts.items())


def completion_status(epoch: Epoch, checkpoints: Sequence[SubtaskCheckpoint]) -> CompletionStatus:
    """FINAL if the job stops after the epoch. Raises InvalidInputError if only some subtasks stop."""
    if not any(checkpoint.then_stop for checkpoint in checkpoints):
        return CompletionStatus.COMPLETE
    going_on = [checkpoint for checkpoint in checkpoints if not checkpoint.then_stop]
    if going_on:
        shown = [f"{each.operator_id}[{each.entry.subtask_index}]" for each in going_on[:3]]
        raise InvalidInputError(
            f"only some subtasks stop after epoch {epoch}",
            found=f"then_stop=False in {len(going_on)} of {len(checkpoints)}: {', '.join(shown)}",
            expected="the same then_stop in every subtask",
            action="run the epoch again from the last published one",
        )
    return CompletionStatus.FINAL


def manifest_watermark(operators: Sequence[OperatorEntry], given_us: int | None) -> int | None:
    """The watermark of an epoch: the least of its operators, which a given one may not contradict.

    What has expired is decided by it. Behind its operators, an epoch would go back; ahead of them,
    rows would be gone that an operator still counts on.
    """
    least_us = _least_watermark([operator.watermark_us for operator in operators])
    if given_us is None or least_us is None:
        return least_us if given_us is None else given_us
    if given_us != least_us:
        raise InvalidInputError(
            "the watermark of an epoch is not that of its subtasks",
            found=f"{given_us} microseconds",
            expected=f"{least_us} microseconds, the least that a subtask reported",
            action="leave watermark_us out; nothing was published",
        )
    return given_us


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
    watermark_us = _least_watermark([part.watermark_us for part in parts])
    return OperatorEntry(
        operator_id=operator_id,
        parallelism=parallelism,
        subtasks=tuple(
            _subtask_entry(part, watermark_us)
            for part in sorted(parts, key=lambda part: part.entry.subtask_index)
        ),
        watermark_us=watermark_us,
    )


def _subtask_entry(part: SubtaskCheckpoint, operator_us: int | None) -> SubtaskEntry:
    own_us = None if part.watermark_us == operator_us else part.watermark_us
    return replace(part.entry, watermark_us=own_us)


def _least_watermark(watermarks: Sequence[int | None]) -> int | None:
    """The least of them; None if one is not known, because it may be anything."""
    known = [watermark_us for watermark_us in watermarks if watermark_us is not None]
    return min(known, default=None) if len(known) == len(watermarks) else None
