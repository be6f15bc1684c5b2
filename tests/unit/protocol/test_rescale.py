"""Rescaling: every valid key belongs to exactly one subtask, whatever the old and new parallelism."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakestate.protocol.key_ranges import ALL_KEYS, KEY_MAX, KeyRange, key_range_of, subtask_of
from lakestate.protocol.metadata import OperatorEntry, SubtaskEntry, SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.rescale import (
    carries,
    clip_files,
    needs_all_subtasks,
    plan_rescale,
)
from lakestate.protocol.table_types import GLOBAL_KEYED, KEYED, TIME_KEY, TableType
from lakestate.protocol.values import Epoch, FileRef, Generation, ObjectRef, TaskInfo
from lakestate.tables.registry import merge_table, subtask_part

PARALLELISMS = st.integers(1, 9)


def file(name: str, *, epoch: int = 1, subtask: int = 0, keys: KeyRange | None = None) -> FileRef:
    return FileRef(name, 1, 2, 3, Epoch(epoch), Generation(1), subtask, 1, 4, keys=keys)


def subtask(
    index: int, parallelism: int, files: tuple[FileRef, ...], table_type: TableType = KEYED
) -> SubtaskMetadata:
    return SubtaskMetadata(
        "job",
        "op",
        index,
        parallelism,
        Epoch(1),
        Generation(1),
        "a",
        key_range_of(index, parallelism),
        0,
        0,
        tables=(TableFiles("t", table_type, files),),
    )


def entry(stored: list[SubtaskMetadata]) -> OperatorEntry:
    return OperatorEntry(
        "op",
        stored[0].parallelism,
        tuple(
            SubtaskEntry(each.subtask_index, each.key_range, ObjectRef(f"m{each.subtask_index}", 0, 0))
            for each in stored
        ),
    )


def restored(stored: list[SubtaskMetadata], parallelism: int) -> list[SubtaskMetadata]:
    """What the subtasks of a new parallelism hold after reading, and would store again."""
    tasks = [TaskInfo("job", "op", index, parallelism) for index in range(parallelism)]
    chosen = [{part.subtask_index for part in plan_rescale(task, entry(stored))} for task in tasks]
    return [
        subtask(
            task.subtask_index,
            parallelism,
            clip_files(files_of(each for each in stored if each.subtask_index in read), task.key_range),
        )
        for task, read in zip(tasks, chosen, strict=True)
    ]


def files_of(stored: Iterable[SubtaskMetadata]) -> list[FileRef]:
    return [file for each in stored for table in each.tables for file in table.files]


def holders(stored: list[SubtaskMetadata], key: int) -> list[tuple[int, str]]:
    """Who sees a key in which file, newest first within a subtask."""
    return [
        (each.subtask_index, file.path)
        for each in stored
        for table in each.tables
        for file in table.files
        if file.valid_keys.first <= key <= file.valid_keys.last
        and (file.keys is None or file.keys.first <= key <= file.keys.last)
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[SubtaskMetadata]:
    """Any stored operator: each subtask with files of its own, some clipped by an earlier rescale."""
    parallelism = draw(PARALLELISMS)
    ends = st.tuples(st.integers(0, KEY_MAX), st.integers(0, KEY_MAX))
    ranges = ends.map(lambda pair: KeyRange(min(pair), max(pair)))
    stored = []
    for index in range(parallelism):
        clips = draw(st.lists(st.tuples(st.none() | ranges, st.just(ALL_KEYS) | ranges), max_size=3))
        files = (
            replace(file(f"{index}-{number}", subtask=index, keys=keys), valid_keys=valid)
            for number, (keys, valid) in enumerate(clips)
        )
        own = (each.clipped_to(key_range_of(index, parallelism)) for each in files)
        stored.append(subtask(index, parallelism, tuple(each for each in own if each is not None)))
    return stored


@st.composite
def interesting_keys(draw: st.DrawFn, stored: list[SubtaskMetadata], parallelism: int) -> int:
    ends = [key_range_of(index, parallelism) for index in range(parallelism)]
    ends += [file.valid_keys for each in stored for table in each.tables for file in table.files]
    near = [key + step for ends_ in ends for key in (ends_.first, ends_.last) for step in (-1, 0, 1)]
    inside = [key for key in near if 0 <= key <= KEY_MAX]
    return draw(st.sampled_from(inside) | st.integers(0, KEY_MAX))


@given(histories(), PARALLELISMS, st.data())
def test_each_key_is_held_by_its_new_subtask_in_the_same_files_and_by_no_other(
    stored: list[SubtaskMetadata], parallelism: int, data: st.DataObject
) -> None:
    key = data.draw(interesting_keys(stored, parallelism))
    before = holders(stored, key)
    after = holders(restored(stored, parallelism), key)
    assert after == [(subtask_of(key, parallelism), path) for _, path in before]


@given(histories(), PARALLELISMS, PARALLELISMS, st.data())
def test_rescaling_there_and_back_changes_nothing(
    stored: list[SubtaskMetadata], between: int, parallelism: int, data: st.DataObject
) -> None:
    twice = restored(restored(stored, between), parallelism)
    key = data.draw(interesting_keys(stored, parallelism))
    assert holders(twice, key) == holders(restored(stored, parallelism), key)


def test_without_a_change_of_parallelism_a_subtask_reads_only_its_own() -> None:
    stored = [subtask(index, 4, (file(f"f{index}", subtask=index),)) for index in range(4)]
    read = [
        [part.subtask_index for part in plan_rescale(TaskInfo("job", "op", index, 4), entry(stored))]
        for index in range(4)
    ]
    assert read == [[0], [1], [2], [3]]


def test_a_half_that_was_compacted_is_not_brought_back_by_the_other_half() -> None:
    whole = [subtask(0, 1, (file("old", keys=ALL_KEYS),))]
    left, right = restored(whole, 2)
    compacted = subtask(0, 2, (file("compacted", epoch=2, keys=left.key_range),))
    merged = restored([compacted, right], 1)[0]
    valid = {each.path: each.valid_keys for each in merged.tables[0].files}
    assert valid == {"compacted": ALL_KEYS, "old": right.key_range}
    assert holders([merged], left.key_range.last) == [(0, "compacted")]


def test_a_replicated_table_is_read_whole_with_the_later_epoch_and_subtask_first() -> None:
    shared = file("a", epoch=1, subtask=1)
    stored = [
        subtask(0, 2, (file("c", epoch=3, subtask=0), shared), GLOBAL_KEYED),
        subtask(1, 2, (file("d", epoch=3, subtask=1), shared), GLOBAL_KEYED),
    ]
    config = TableConfig("t", GLOBAL_KEYED)
    merged = merge_table(config, {each.subtask_index: each.tables[0] for each in stored})
    parts = [subtask_part(config, merged, TaskInfo("job", "op", index, 3)) for index in range(3)]
    assert [[file.path for file in part.files] for part in parts] == [["d", "c", "a"]] * 3


@given(st.integers(0, 32767), PARALLELISMS)
def test_exactly_one_subtask_carries_a_replicated_file_forward(writer: int, parallelism: int) -> None:
    tasks = [TaskInfo("job", "op", index, parallelism) for index in range(parallelism)]
    assert [task.subtask_index for task in tasks if carries(task, file("f", subtask=writer))] == [
        writer % parallelism
    ]


def test_only_replicated_tables_need_the_metadata_of_every_subtask() -> None:
    assert not needs_all_subtasks([KEYED, TIME_KEY])
    assert needs_all_subtasks([KEYED, GLOBAL_KEYED])
