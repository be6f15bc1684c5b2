from __future__ import annotations

import pickle
from dataclasses import replace
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from tests.support.jobs.replicated_operator import (
    TOTALS,
    ReplicatedOperator,
    operator_with,
    rows_of,
)

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.protocol.values import Epoch, FileRef, Generation
from lakestate.tables.global_keyed.files import newest_first
from lakestate.tables.global_keyed.table import GlobalKeyedTable

# Reading and writing


def test_what_was_inserted_is_there_at_once_and_after_a_restore() -> None:
    operator = ReplicatedOperator(TOTALS)
    operator.views[0].insert("total", 42)
    assert operator.views[0].get("total") == 42
    operator.checkpoint()
    operator.restore(1)
    assert operator.views[0].get_all() == {"total": 42}


def test_a_missing_key_gives_the_default() -> None:
    view = operator_with({"a": 1}).views[0]
    assert (view.get("b"), view.get("b", 7), "b" in view) == (None, 7, False)


def test_removing_gives_the_previous_value() -> None:
    view = operator_with({"a": 1}).views[0]
    view.insert("a", 2)
    assert (view.remove("a"), view.remove("a"), "a" in view, len(view)) == (2, None, False, 0)


def test_a_stored_none_is_a_value_and_not_a_removal() -> None:
    operator = operator_with({"seen": None}, GlobalKeyedTable("seen", key=str, value=int | None))
    operator.restore(1)
    assert "seen" in operator.views[0]


def test_length_and_iteration_count_an_overwritten_key_once() -> None:
    view = operator_with({"a": 1, "b": 2}).views[0]
    view.insert("b", 3)
    view.insert("c", 4)
    assert (len(view), sorted(view), dict(view.items())) == (3, ["a", "b", "c"], {"a": 1, "b": 3, "c": 4})


def test_entries_may_be_removed_while_iterating() -> None:
    view = operator_with({"a": 1, "b": 2}).views[0]
    for key in view:
        view.remove(key)
    assert view.get_all() == {}


@pytest.mark.parametrize("host", ["no-cache", "new-hosts"], indirect=True)
def test_inserting_reads_no_file() -> None:
    operator = operator_with({"a": 1})
    operator.overwrite(operator.files.files[0].path, b"damaged")
    operator.restore(1)
    operator.views[0].insert("b", 2)
    operator.checkpoint()
    with pytest.raises(CorruptionError):
        operator.views[0].get("a")


def test_a_view_that_loads_late_sees_what_it_wrote_before() -> None:
    operator = operator_with({"a": 1})
    operator.restore(1)
    for epoch in range(3):
        operator.views[0].insert(f"new-{epoch}", epoch)
        operator.checkpoint()
    assert operator.views[0].get_all() == {"a": 1, "new-0": 0, "new-1": 1, "new-2": 2}


# Files


def test_a_file_holds_binary_keys_as_they_were_written_and_null_for_a_removed_one() -> None:
    operator = operator_with({"c": 3, "b": 2, "a": 1})
    operator.views[0].remove("b")
    operator.views[0].insert("d", 4)
    operator.checkpoint()
    newest, oldest = operator.files.files
    assert rows_of(operator, oldest) == [
        {"key": b"\xa1c", "value": b"\x03"},
        {"key": b"\xa1b", "value": b"\x02"},
        {"key": b"\xa1a", "value": b"\x01"},
    ]
    assert rows_of(operator, newest) == [
        {"key": b"\xa1d", "value": b"\x04"},
        {"key": b"\xa1b", "value": None},
    ]
    assert (newest.row_count, newest.removed_count) == (2, 1)


def test_a_file_names_its_table_and_is_compressed_with_zstd() -> None:
    operator = operator_with({"a": 1})
    metadata = pq.read_metadata(BytesIO(operator.read(operator.files.files[0].path)))
    assert metadata.metadata[b"lakestate.table"] == b"totals"
    assert {metadata.row_group(0).column(index).compression for index in (0, 1)} == {"ZSTD"}


def test_an_epoch_without_change_writes_no_file() -> None:
    operator = operator_with({"a": 1})
    before = operator.files
    operator.views[0].get("a")
    assert (operator.checkpoint()[0].bytes_written, operator.files) == (0, before)


def test_removing_what_was_never_stored_writes_no_file() -> None:
    operator = operator_with({"a": 1})
    operator.views[0].insert("b", 2)
    operator.views[0].remove("b")
    operator.views[0].remove("c")
    assert operator.checkpoint()[0].bytes_written == 0


def test_a_key_removed_and_inserted_again_is_written_once() -> None:
    operator = operator_with({"a": 1})
    operator.views[0].remove("a")
    operator.views[0].insert("a", 2)
    operator.checkpoint()
    assert rows_of(operator, operator.files.files[0]) == [{"key": b"\xa1a", "value": b"\x02"}]


def test_one_percent_changed_writes_at_most_two_percent() -> None:
    operator = operator_with({f"key-{number * 7919 % 100_003}": number for number in range(100_000)})
    full = operator.last[0].bytes_written
    for number in range(0, 100_000, 100):
        operator.views[0].insert(f"key-{number * 7919 % 100_003}", -number)
    assert operator.checkpoint()[0].bytes_written <= 0.02 * full + 2048


# Several subtasks


def test_every_subtask_reads_what_all_wrote() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=3)
    for index, view in enumerate(operator.views):
        view.insert(f"from-{index}", index)
    operator.checkpoint()
    operator.restore(2)
    everything = {"from-0": 0, "from-1": 1, "from-2": 2}
    assert [view.get_all() for view in operator.views] == [everything, everything]


def test_in_one_epoch_the_higher_subtask_wins_and_a_later_epoch_wins_over_it() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=2)
    for index, view in enumerate(operator.views):
        view.insert("both", index)
        view.insert("later", index)
    operator.checkpoint()
    operator.views[0].insert("later", 10)
    operator.checkpoint()
    operator.restore(1)
    assert operator.views[0].get_all() == {"both": 1, "later": 10}


@pytest.mark.parametrize("parallelism", [1, 2, 5, 8])
def test_after_rescaling_every_file_is_carried_by_one_subtask(parallelism: int) -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=3)
    for index, view in enumerate(operator.views):
        view.insert(str(index), index)
    operator.checkpoint()
    before = operator.files
    operator.restore(parallelism)
    operator.checkpoint()
    assert operator.carried_once()
    assert operator.files == before


def test_a_subtask_still_sees_the_entries_of_others_after_its_checkpoint() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=2)
    operator.views[1].insert("other", 1)
    operator.checkpoint()
    operator.restore(2)
    operator.views[0].insert("own", 0)
    operator.checkpoint()
    assert operator.views[0].get_all() == {"other": 1, "own": 0}


def test_files_of_others_are_read_before_the_epoch_that_names_them_may_be_collected() -> None:
    operator = ReplicatedOperator(TOTALS, parallelism=2)
    operator.views[1].insert("other", 1)
    operator.checkpoint()
    operator.restore(2)
    operator.checkpoint(min_epoch=2)
    operator.checkpoint(min_epoch=3)
    for file in operator.files.files:
        operator.overwrite(file.path, b"collected")
    assert operator.views[0].get_all() == {"other": 1}


# Commit data


def test_commit_data_belongs_to_one_epoch() -> None:
    operator = ReplicatedOperator(GlobalKeyedTable("sink", key=str, value=int, two_phase_commit=True))
    operator.views[0].set_commit_data(b"upload 7")
    first = operator.checkpoint()[0].files.commit_data
    second = operator.checkpoint()[0].files.commit_data
    assert (first, second) == (b"upload 7", None)


def test_commit_data_needs_a_table_for_two_phase_commit() -> None:
    with pytest.raises(InvalidInputError, match="two_phase_commit=True"):
        ReplicatedOperator(TOTALS).views[0].set_commit_data(b"x")


# Declarations


def test_a_declaration_pickles_also_after_use() -> None:
    operator = operator_with({"a": 1}, GlobalKeyedTable("totals", key=str, value=int))
    again = pickle.loads(pickle.dumps(operator.table))
    operator.restore(1, again)
    assert (again.config, operator.views[0].get("a")) == (TOTALS.config, 1)


def test_a_table_known_from_its_metadata_only_is_not_opened() -> None:
    table = GlobalKeyedTable.from_config(TOTALS.config)
    operator = ReplicatedOperator(TOTALS)
    with pytest.raises(InvalidInputError, match="key str, value int"):
        table.open_view(operator.files, operator.contexts[0])


# Order of files


def test_files_of_one_epoch_and_subtask_stay_in_the_order_in_which_they_were_written() -> None:
    file = FileRef("z.parquet", 1, 1, 1, Epoch(2), Generation(1), 0, 1, 1)
    written = [replace(file, path=f"{name}.parquet") for name in "bca"]
    older = replace(file, path="y.parquet", epoch=Epoch(1))
    higher = replace(file, path="x.parquet", subtask_index=1)
    assert newest_first([older, *written, higher]) == (higher, *written, older)
