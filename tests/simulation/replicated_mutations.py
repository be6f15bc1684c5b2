"""Deliberate bugs in tables that all subtasks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.mutations import Mutation, Patch

from lakestate.tables.global_keyed import checkpointer as global_keyed_checkpointer
from lakestate.tables.global_keyed import compaction as global_keyed_compaction


def forget_carried_entries(patch: Patch) -> None:
    patch.setattr(global_keyed_checkpointer, "carries", lambda task, file: False)


def let_the_oldest_win(patch: Patch) -> None:
    real = global_keyed_compaction.read_entries

    def read(files: Sequence[Any], *more: Any) -> Any:
        return real(tuple(reversed(files)), *more)

    patch.setattr(global_keyed_compaction, "read_entries", read)


def drop_removed_entries(patch: Patch) -> None:
    real = global_keyed_compaction._newest_entries

    def newest_live(*given: Any) -> Any:
        return {key: value for key, value in real(*given).items() if value is not None}

    patch.setattr(global_keyed_compaction, "_newest_entries", newest_live)


REPLICATED = (
    Mutation("forget carried entries of a replicated table", forget_carried_entries),
    Mutation("let the oldest value win in a merge of a replicated table", let_the_oldest_win),
    Mutation(
        "drop removed keys in a partial merge of a replicated table", drop_removed_entries, is_rare=True
    ),
)
