from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.jobs.replicated_operator import (
    EAGER,
    TOTALS,
    ReplicatedOperator,
    operator_with,
    rows_of,
)

from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.values import Epoch
from lakestate.tables.global_keyed.table import GlobalKeyedTable


def test_a_merge_holds_the_newest_values_and_no_removed_keys() -> None:
    operator = operator_with({"a": 1, "b": 2, "c": 3})
    operator.views[0].insert("a", 10)
    operator.views[0].remove("b")
    operator.checkpoint()
    merge = operator.compact()
    assert merge is not None
    assert rows_of(operator, merge.merged[0]) == [
        {"key": b"\xa1a", "value": b"\x0a"},
        {"key": b"\xa1c", "value": b"\x03"},
    ]
    assert merge.replaced == operator.files.files


def test_a_merge_needs_no_types() -> None:
    operator = operator_with({"a": 1})
    operator.views[0].insert("b", 2)
    operator.checkpoint()
    operator.compact(table=GlobalKeyedTable.from_config(TOTALS.config))
    operator.restore(1)
    assert len(operator.parts[0].files) == 1
    assert operator.views[0].get_all() == {"a": 1, "b": 2}


def test_a_merge_lies_below_what_was_written_while_it_was_made() -> None:
    operator = operator_with({"a": 1, "b": 1})
    operator.views[0].insert("a", 2)
    operator.checkpoint()
    merge = operator.compact()
    operator.views[0].insert("a", 3)
    operator.views[0].remove("b")
    operator.checkpoint()
    operator.pending = merge
    operator.restore(1)
    assert [file.epoch for file in operator.parts[0].files] == [Epoch(3), Epoch(2)]
    operator.checkpoint()
    operator.restore(1)
    assert operator.views[0].get_all() == {"a": 3}


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_merge_of_all_subtasks_is_carried_by_one(parallelism: int) -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=3)
    for epoch in range(2):
        for index, view in enumerate(operator.views):
            view.insert(f"{index}-{epoch}", epoch)
        operator.checkpoint()
    everything = {f"{index}-{epoch}": epoch for index in range(3) for epoch in range(2)}
    merge = operator.compact()
    assert merge is not None
    operator.restore(parallelism)
    assert [view.get_all() for view in operator.views] == [everything] * parallelism
    operator.checkpoint()
    assert operator.carried_once()
    assert operator.files.files == merge.merged


def test_a_merge_of_files_that_are_not_all_there_is_dropped() -> None:
    operator = operator_with({"a": 1})
    operator.views[0].insert("b", 2)
    operator.checkpoint()
    merge = operator.compact()
    assert merge is not None
    fewer = TableFiles("totals", TOTALS.table_type, operator.files.files[1:])
    older = TableFiles("totals", TOTALS.table_type, (*merge.replaced, *merge.merged))
    for files in (fewer, older):
        task = operator.contexts[0].task
        assert TOTALS.apply_compacted_checkpoint(files, merge, task) == files


def test_a_merge_in_which_nothing_is_left_stores_nothing() -> None:
    operator = operator_with({"a": 1})
    operator.views[0].remove("a")
    operator.checkpoint()
    merge = operator.compact()
    assert merge is not None
    assert (merge.merged, merge.bytes_written) == ((), 0)
    operator.restore(1)
    operator.checkpoint()
    assert operator.files.files == ()


def test_small_changes_are_merged_with_each_other_and_not_with_a_large_file() -> None:
    operator = operator_with({f"key-{number}": number * 2654435761 % 2**32 for number in range(20_000)})
    for epoch in range(4):
        operator.views[0].insert("key-1", epoch)
        operator.views[0].remove(f"key-{epoch + 2}")
        operator.checkpoint()
    before = operator.views[0].get_all()
    *small, large = operator.files.files
    merge = operator.compact(CompactionPolicy(files_min=4, files_max=16, size_floor_bytes=1))
    assert merge is not None
    assert (merge.replaced, merge.keeps_removals) == (tuple(small), True)
    assert [(file.epoch, file.row_count, file.removed_count) for file in merge.merged] == [(5, 5, 4)]
    operator.restore(1)
    assert operator.parts[0].files == (*merge.merged, large)
    assert operator.views[0].get_all() == before


def test_a_merge_that_keeps_removals_lies_between_older_and_newer_files() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=3)
    for epoch in range(4):
        for index, view in enumerate(operator.views):
            view.insert("all", 10 * epoch + index)
            view.insert(f"{index}-{epoch}", epoch)
            view.remove(f"{index}-{epoch - 1}")
        operator.checkpoint()
    *_, oldest = [operator.files.files[start : start + 3] for start in range(0, 12, 3)]
    newer = operator.files.files[:9]
    merge = TOTALS.compact_data(
        TableFiles("totals", TOTALS.table_type, newer), EAGER, Epoch(5), operator.context(0, 1)
    )
    assert merge is not None
    merge = replace(merge, keeps_removals=False)
    task = operator.contexts[0].task
    assert TOTALS.apply_compacted_checkpoint(operator.files, merge, task) == operator.files
    kept = replace(merge, keeps_removals=True)
    assert TOTALS.apply_compacted_checkpoint(operator.files, kept, task).files == (*merge.merged, *oldest)


def test_what_is_merged_are_whole_epochs() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=8)
    everything = {}
    for epoch, (subtask, entries) in enumerate([(0, 40_000), (3, 10_000), (0, 1), (0, 1)]):
        for index, view in enumerate(operator.views):
            for number in range(entries if index == subtask else 1):
                everything[f"{index}-{epoch}-{number}"] = number * 2654435761 % 2**32
                view.insert(f"{index}-{epoch}-{number}", number * 2654435761 % 2**32)
        operator.checkpoint()
    # Alone, the large file of epoch 2 and those of lower subtasks would not be picked.
    merge = operator.compact(CompactionPolicy(files_min=5, files_max=50, size_floor_bytes=1))
    assert merge is not None
    assert merge.replaced == tuple(file for file in operator.files.files if file.epoch > 1)
    operator.restore(3)
    assert [view.get_all() for view in operator.views] == [everything] * 3


def test_too_many_files_are_merged_whatever_their_sizes() -> None:
    operator = operator_with({f"key-{number}": number * 2654435761 % 2**32 for number in range(20_000)})
    for epoch in range(4):
        operator.views[0].insert("key-1", epoch)
        operator.checkpoint()
    policy = CompactionPolicy(files_min=4, files_max=4, size_floor_bytes=1)
    assert operator.compact(policy) is not None
