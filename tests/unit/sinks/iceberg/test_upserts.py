"""Updates and changes by key in an Iceberg table: each epoch is merged exactly once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.types import StringType
from tests.support.repository import ROOT
from tests.support.sinks.iceberg_job import TABLE, Warehouse

from lakestate.errors import InvalidInputError, OutcomeUnknownError
from lakestate.row_kind import AFTER, BEFORE, CHANGE, DELETE, INSERT, RowKind, StreamKind
from lakestate.sinks import Roll
from lakestate.sinks.iceberg import catalog_calls
from lakestate.sinks.iceberg.upserts import IcebergUpsertSink, delivery
from lakestate.sinks.iceberg.upserts.rows import ChangedKeys
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.sink_harness import CrashPoint, SinkHarness

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
CHANGES = SCHEMA.append(pa.field(CHANGE, pa.string()))
UPDATES = StreamKind(RowKind.UPSERT, ("user",))

Row = dict[str, Any]
Commit = Callable[..., Any]


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setattr(catalog_calls, "_WAIT_FIRST_S", 0)
    return Warehouse(tmp_path / "warehouse")


def harness_of(warehouse: Warehouse, kind: RowKind = RowKind.UPSERT, **settings: Any) -> SinkHarness:
    sink = warehouse.sink(key=["user"], **settings).for_stream(StreamKind(kind, ("user",)), "sink out")
    schema = CHANGES if kind is RowKind.CHANGES else SCHEMA
    sink.check(schema)
    return SinkHarness(sink, schema, parallelism=2)


def users(**values: int | None) -> list[Row]:
    return [{"user": name, "n": n} for name, n in values.items()]


def changes(*found: tuple[str, str, int]) -> list[Row]:
    return [{"user": user, "n": n, CHANGE: change} for change, user, n in found]


def table_rows(warehouse: Warehouse) -> dict[Any, Any]:
    rows = warehouse.table().scan().to_arrow().to_pylist()
    assert len(rows) == len({row["user"] for row in rows}), "a key is there twice"
    return {row["user"]: row["n"] for row in rows}


def test_the_newest_row_of_each_key_is_in_the_table(warehouse: Warehouse) -> None:
    harness = harness_of(warehouse)
    harness.epoch(users(a=1, b=2), users(c=3))
    harness.epoch(users(a=10), users(d=4))
    harness.epoch([*users(a=11), *users(a=12)], [])
    assert table_rows(warehouse) == {"a": 12, "b": 2, "c": 3, "d": 4}
    operations = [each.summary.operation.value for each in warehouse.table().metadata.snapshots]
    assert operations == ["append", "overwrite", "overwrite"]


def test_changes_insert_update_and_delete(warehouse: Warehouse) -> None:
    harness = harness_of(warehouse, RowKind.CHANGES)
    harness.epoch(changes((INSERT, "a", 1), (INSERT, "b", 2), (INSERT, "c", 3)))
    harness.epoch(changes((BEFORE, "a", 1), (AFTER, "a", 5), (DELETE, "b", 2)))
    assert table_rows(warehouse) == {"a": 5, "c": 3}
    harness.epoch(changes((DELETE, "a", 5), (DELETE, "c", 3)))
    assert table_rows(warehouse) == {}
    harness.epoch(changes((INSERT, "a", 7), (DELETE, "a", 7), (INSERT, "b", 8)))
    assert table_rows(warehouse) == {"b": 8}
    assert warehouse.table().current_snapshot().summary["total-records"] == "1"


def test_a_column_that_somebody_adds_keeps_its_values_where_rows_stay(warehouse: Warehouse) -> None:
    harness = harness_of(warehouse)
    harness.epoch(users(a=1, b=2))
    with warehouse.table().update_schema() as update:
        update.add_column("note", StringType())
    warehouse.table().append(pa.table({"user": ["c"], "n": [3], "note": ["by hand"]}))
    harness.epoch(users(a=4, d=5))
    rows = warehouse.table().scan().to_arrow().sort_by("user").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("a", 4, None),
        ("b", 2, None),
        ("c", 3, "by hand"),
        ("d", 5, None),
    ]


def test_a_zombie_that_delivers_an_old_epoch_changes_nothing(warehouse: Warehouse) -> None:
    harness = harness_of(warehouse)
    for n in (1, 2, 3):
        harness.epoch(users(a=n))
    before = warehouse.table().metadata
    harness.commit_again()
    assert warehouse.table().metadata == before
    expired = [each.snapshot_id for each in before.snapshots][:-1]
    for snapshot_id in expired:
        warehouse.table().maintenance.expire_snapshots().by_id(snapshot_id).commit()
    harness.commit_again()
    assert table_rows(warehouse) == {"a": 3}


def test_a_key_that_is_null_is_a_key(warehouse: Warehouse) -> None:
    harness = harness_of(warehouse)
    harness.epoch([{"user": None, "n": 1}, *users(a=2)])
    harness.epoch([{"user": None, "n": 3}])
    assert table_rows(warehouse) == {None: 3, "a": 2}


def test_only_files_that_hold_changed_keys_are_rewritten(warehouse: Warehouse) -> None:
    harness = harness_of(warehouse, partition_by=["truncate(1, user)"])
    harness.epoch(users(a1=1, a2=2, b1=3))
    before = {task.file.file_path for task in warehouse.table().scan(row_filter="user = 'b1'").plan_files()}
    harness.epoch(users(a1=9))
    assert table_rows(warehouse) == {"a1": 9, "a2": 2, "b1": 3}
    assert before < {task.file.file_path for task in warehouse.table().scan().plan_files()}


def test_many_keys_are_found_by_their_range(warehouse: Warehouse) -> None:
    harness = harness_of(warehouse)
    names = [f"user {number:04d}" for number in range(1_000)]
    harness.epoch([{"user": name, "n": 0} for name in names])
    harness.epoch([{"user": name, "n": 1} for name in names[::2]])
    expected = {name: 1 - number % 2 for number, name in enumerate(names)}
    assert table_rows(warehouse) == expected


def test_different_keys_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "lakestate.sinks.iceberg.upserts.rows.routing_keys"
    monkeypatch.setattr(module, lambda columns: np.zeros(len(columns[0]), np.uint64))
    changed = ChangedKeys.of(pa.table({"k": ["a", "b"], "n": [1, 2]}), ["k"])
    assert changed.is_replaced(pa.table({"k": ["b", "c", "a"]})).tolist() == [True, False, True]


@pytest.fixture
def on_commit(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Commit | None]]:
    """What the catalog does instead of its next commits; None lets one pass."""
    instead: list[Commit | None] = []
    catalog = warehouse.catalog.load()
    commit_table = catalog.commit_table

    def commit(*args: Any) -> Any:
        act = instead.pop(0) if instead else None
        return commit_table(*args) if act is None else act(lambda: commit_table(*args))

    monkeypatch.setattr(catalog, "commit_table", commit)
    yield instead
    assert not instead, "the catalog was to be asked more often"


@pytest.mark.parametrize("error", [CommitFailedException("busy"), CommitStateUnknownException("?")])
@pytest.mark.parametrize("happens", [True, False])
def test_an_epoch_is_merged_once_whatever_its_commit_answers(
    warehouse: Warehouse, on_commit: list[Commit | None], error: Exception, happens: bool
) -> None:
    def answer(commit: Commit) -> None:
        if happens:
            commit()
        raise error

    harness = harness_of(warehouse)
    harness.epoch(users(a=1, b=2))
    on_commit.append(answer)
    harness.epoch(users(a=3))
    assert table_rows(warehouse) == {"a": 3, "b": 2}
    assert warehouse.epochs() == ["1", "2"]


@pytest.mark.parametrize("happens", [True, False])
def test_a_crash_around_the_commit_is_followed_by_a_replay(
    warehouse: Warehouse, on_commit: list[Commit | None], happens: bool
) -> None:
    def crash(commit: Commit) -> None:
        if happens:
            commit()
        raise SimulatedCrash("driver")

    harness = harness_of(warehouse)
    harness.epoch(users(a=1, b=2))
    on_commit.append(crash)
    with pytest.raises(SimulatedCrash):
        harness.epoch(users(a=3))
    harness.restart()
    harness.epoch(users(b=4))
    assert table_rows(warehouse) == {"a": 3, "b": 4}
    assert warehouse.epochs() == ["1", "2", "3"]


@pytest.mark.parametrize("point", list(CrashPoint))
def test_a_crash_of_the_driver_at_any_point_changes_nothing(warehouse: Warehouse, point: CrashPoint) -> None:
    harness = harness_of(warehouse)
    harness.epoch(users(a=1, b=2))
    harness.crash(point, users(a=3))
    harness.restart()
    harness.epoch(users(a=4), users(c=5))
    assert table_rows(warehouse) == {"a": 4, "b": 2, "c": 5}


def test_somebody_writes_between_our_look_and_our_commit(
    warehouse: Warehouse, on_commit: list[Commit | None]
) -> None:
    def after_another(commit: Commit) -> Any:
        warehouse.table().append(pa.table({"user": ["a"], "n": [100]}, SCHEMA))
        return commit()

    harness = harness_of(warehouse)
    harness.epoch(users(b=2))
    on_commit.append(after_another)
    harness.epoch(users(a=3))
    assert table_rows(warehouse) == {"a": 3, "b": 2}
    # What the try that failed wrote is gone.
    data = {str(path) for path in warehouse.root.rglob("*.parquet")}
    assert len(data) == 3


def test_updates_need_a_key_and_the_right_one(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidInputError, match=r"pass key=\['user'\]"):
        warehouse.sink().for_stream(UPDATES, "sink out")
    with pytest.raises(InvalidInputError, match="another key than its rows"):
        warehouse.sink(key=["n"]).for_stream(UPDATES, "sink out")
    with pytest.raises(InvalidInputError, match="named twice"):
        warehouse.sink(key=["user", "user"])
    with pytest.raises(InvalidInputError, match="no open files"):
        warehouse.sink(key=["user"], roll=Roll(visible="1 second"))


@pytest.mark.parametrize(
    ("column", "text"),
    [(pa.field("other", pa.string()), "not in the rows"), (pa.field("user", pa.float64()), "told apart")],
)
def test_a_key_that_rows_lack_or_that_cannot_be_compared_is_refused(
    warehouse: Warehouse, column: pa.Field, text: str
) -> None:
    sink = warehouse.sink(key=["user"]).for_stream(StreamKind(), "sink out")
    assert isinstance(sink, IcebergUpsertSink)
    with pytest.raises(InvalidInputError, match=text):
        sink.check(pa.schema([column]))
    assert not warehouse.root.exists()


def test_the_table_is_named_in_what_is_recorded(warehouse: Warehouse) -> None:
    harness_of(warehouse).epoch(users(a=1))
    summary = warehouse.table().current_snapshot().summary.additional_properties
    name = f"lakestate.committed.{summary['lakestate.job-id']}.{summary['lakestate.sink']}"
    assert warehouse.table().properties[name] == "1"
    assert ".".join(warehouse.table().name()) == TABLE


def test_the_example_of_the_documentation_keeps_one_row_for_each_key(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "iceberg.md").read_text().split("## Keep one row for each key\n")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    for place in (tmp_path / "once", tmp_path / "twice"):
        names: dict[str, Any] = {}
        exec(code.replace("/data/warehouse", str(place)), names)
        sink = names["totals"].for_stream(UPDATES, "sink out")
        sink.check(SCHEMA)
        harness = SinkHarness(sink, SCHEMA)
        harness.epoch(users(a=1, b=2))
        harness.epoch(users(a=3))
        found = names["totals"].load_table().scan().to_arrow().sort_by("user").to_pylist()
        assert found == users(a=3, b=2)


def test_an_epoch_is_tried_again_if_the_store_does_not_answer_before_its_commit(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with changed keys are read, and written again; pyiceberg raises what the file system raises."""
    harness = harness_of(warehouse, commit_attempts_max=2)
    harness.epoch(users(a=1, b=2))
    real, failures = delivery._rewritten_files, [OSError("503"), OSError("503"), OSError("503")]

    def rewritten_files(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*args)

    monkeypatch.setattr(delivery, "_rewritten_files", rewritten_files)
    with pytest.raises(OutcomeUnknownError, match="the next start commits the epoch again"):
        harness.epoch(users(a=3))
    assert table_rows(warehouse) == {"a": 1, "b": 2}
    harness.restart()
    assert table_rows(warehouse) == {"a": 3, "b": 2}


def test_files_of_a_refused_commit_that_cannot_be_removed_do_no_harm(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harness_of(warehouse)
    harness.epoch(users(a=1))
    catalog = warehouse.catalog.load()
    real, refused = catalog.commit_table, [CommitFailedException("somebody was first")]

    def commit_table(*args: Any) -> Any:
        if refused:
            raise refused.pop()
        return real(*args)

    def discard(change: Any) -> None:
        raise OSError("503")

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    monkeypatch.setattr(delivery.RowChange, "discard", discard)
    harness.epoch(users(a=2))
    assert table_rows(warehouse) == {"a": 2}
