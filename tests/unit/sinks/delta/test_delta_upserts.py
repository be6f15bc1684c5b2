"""A stream kept by key in a Delta table: each epoch is merged exactly once, whatever happens to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger
from tests.support.sinks.delta_job import DeltaFolder

from lakestate.errors import CorruptionError, InvalidInputError, LakestateError, OperatorError
from lakestate.row_kind import AFTER, BEFORE, CHANGE, DELETE, INSERT, RowKind, StreamKind
from lakestate.sinks.delta import epoch_log
from lakestate.sinks.delta.sink import DeltaSink
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.sinks.rolling import Roll
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.sink_harness import CrashPoint, SinkHarness

ROWS = pa.schema([("user", pa.string()), ("n", pa.int64())])
CHANGES = pa.schema([*ROWS, (CHANGE, pa.string())])
UPDATES_BY_USER = StreamKind(RowKind.UPSERT, ("user",))
CHANGES_BY_USER = StreamKind(RowKind.CHANGES, ("user",))

Commit = Callable[[], Any]
Instead = Callable[[Commit], Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaFolder:
    monkeypatch.setattr(epoch_log, "_WAIT_FIRST_S", 0)
    return DeltaFolder(tmp_path / "totals")


@pytest.fixture
def on_merge(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Instead]]:
    """What happens instead of the next merges; each gets the merge itself."""
    instead: list[Instead] = []
    execute = TableMerger.execute

    def merge(merger: TableMerger) -> Any:
        return instead.pop(0)(lambda: execute(merger)) if instead else execute(merger)

    monkeypatch.setattr(TableMerger, "execute", merge)
    yield instead
    assert not instead, "there were to be more merges"


def sink_of(folder: DeltaFolder, **settings: Any) -> DeltaSink:
    return DeltaSink(f"file://{folder.root}", key=["user"], **settings)


def updates(folder: DeltaFolder, **settings: Any) -> SinkHarness:
    return SinkHarness(sink_of(folder), ROWS, kind=UPDATES_BY_USER, **settings)


def changes(folder: DeltaFolder, **settings: Any) -> SinkHarness:
    return SinkHarness(sink_of(folder), CHANGES, kind=CHANGES_BY_USER, **settings)


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"user": user, "n": n} for user, n in pairs]


def changed(*given: tuple[str, str, int]) -> list[dict[str, Any]]:
    return [{CHANGE: change, "user": user, "n": n} for change, user, n in given]


def found(folder: DeltaFolder) -> dict[str, int]:
    pairs = [(row["user"], row["n"]) for row in folder.all_rows()]
    assert len(dict(pairs)) == len(pairs), "a key is there twice"
    return dict(sorted(pairs))


def test_a_row_replaces_the_row_of_its_key_and_the_last_one_of_an_epoch_counts(folder: DeltaFolder) -> None:
    job = updates(folder, parallelism=2)
    job.epoch(rows(("ada", 1), ("ada", 2)), rows(("bob", 1)))
    assert found(folder) == {"ada": 2, "bob": 1}
    job.epoch(rows(("cy", 5), ("ada", 9), ("cy", 6)))
    assert found(folder) == {"ada": 9, "bob": 1, "cy": 6}
    assert folder.epochs() == ["1", "2"]


def test_changes_insert_update_and_delete(folder: DeltaFolder) -> None:
    job = changes(folder)
    job.epoch(changed((INSERT, "ada", 1), (INSERT, "bob", 2), (INSERT, "cy", 3)))
    job.epoch(
        changed(
            (BEFORE, "ada", 1),
            (AFTER, "ada", 4),
            (DELETE, "bob", 2),
            (DELETE, "cy", 3),
            (INSERT, "cy", 5),
            (INSERT, "dee", 6),
            (DELETE, "dee", 6),
        )
    )
    assert found(folder) == {"ada": 4, "cy": 5}
    assert [field.name for field in folder.table().schema().fields] == ["user", "n"]


def test_final_rows_are_kept_by_key_too(folder: DeltaFolder) -> None:
    job = SinkHarness(sink_of(folder), ROWS)
    job.epoch(rows(("ada", 1), ("bob", 1)))
    job.epoch(rows(("ada", 2)))
    assert found(folder) == {"ada": 2, "bob": 1}


def test_an_epoch_that_changes_nothing_is_recorded(folder: DeltaFolder) -> None:
    job = changes(folder)
    job.epoch(changed((DELETE, "nobody", 0)))
    assert folder.epochs() == ["1"]
    job.commit_again()
    assert folder.epochs() == ["1"]
    assert found(folder) == {}


def test_an_epoch_without_rows_makes_no_commit(folder: DeltaFolder) -> None:
    job = updates(folder)
    job.epoch(rows(("ada", 1)))
    version = folder.table().version()
    job.epoch()
    job.finish()
    assert folder.table().version() == version


@pytest.mark.parametrize("point", list(CrashPoint))
def test_a_driver_that_dies_leaves_the_epoch_to_the_next_one(folder: DeltaFolder, point: CrashPoint) -> None:
    job = changes(folder)
    job.epoch(changed((INSERT, "ada", 1), (INSERT, "bob", 1)))
    second = changed((BEFORE, "ada", 1), (AFTER, "ada", 2), (DELETE, "bob", 1))
    job.crash(point, second)
    job.restart(parallelism=3)
    if point is CrashPoint.BEFORE_PUBLISHING:
        job.epoch(second)
    job.epoch(changed((INSERT, "bob", 3)))
    assert found(folder) == {"ada": 2, "bob": 3}
    assert folder.epochs() == ["1", "2", "3"]


def test_a_zombie_that_delivers_an_old_epoch_changes_nothing(folder: DeltaFolder) -> None:
    job = updates(folder)
    job.epoch(rows(("ada", 1)))
    job.epoch(rows(("ada", 2)))
    job.commit_again(0)
    job.commit_again(1)
    assert found(folder) == {"ada": 2}
    assert folder.epochs() == ["1", "2"]


@pytest.mark.parametrize("error", [CommitFailedError("412"), OSError("timed out"), Exception("External")])
def test_a_merge_whose_answer_is_lost_is_not_repeated(
    folder: DeltaFolder, on_merge: list[Instead], error: Exception
) -> None:
    def lose(merge: Commit) -> None:
        merge()
        raise error

    job = changes(folder)
    job.epoch(changed((INSERT, "ada", 1)))
    on_merge.append(lose)
    job.epoch(changed((DELETE, "ada", 1), (INSERT, "bob", 1)))
    assert found(folder) == {"bob": 1}
    assert folder.epochs() == ["1", "2"]


def test_a_merge_that_meets_another_writer_is_made_again_on_the_newer_table(
    folder: DeltaFolder, on_merge: list[Instead]
) -> None:
    def be_second(merge: Commit) -> Any:
        write_deltalake(folder.root, pa.Table.from_pylist(rows(("eve", 7), ("bob", 7)), ROWS), mode="append")
        return merge()

    job = updates(folder)
    job.epoch(rows(("ada", 1)))
    on_merge.append(be_second)
    job.epoch(rows(("ada", 2), ("bob", 2)))
    assert found(folder) == {"ada": 2, "bob": 2, "eve": 7}


def test_a_driver_killed_in_a_merge_leaves_the_epoch_to_the_next_one(
    folder: DeltaFolder, on_merge: list[Instead]
) -> None:
    def die(merge: Commit) -> None:
        merge()
        raise SimulatedCrash("killed")

    job = updates(folder)
    on_merge.append(die)
    with pytest.raises(SimulatedCrash):
        job.epoch(rows(("ada", 1)))
    job.restart()
    assert found(folder) == {"ada": 1}
    assert folder.epochs() == ["1"]


def test_a_merge_that_another_writer_replaces_is_noticed_and_repeated(
    folder: DeltaFolder, on_merge: list[Instead]
) -> None:
    def be_replaced(merge: Commit) -> None:
        merge()
        commit = folder.root / "_delta_log" / f"{folder.table().version():020d}.json"
        commit.unlink()
        write_deltalake(folder.root, pa.Table.from_pylist(rows(("eve", 7)), ROWS), mode="append")

    job = updates(folder)
    job.epoch(rows(("ada", 1)))
    on_merge.append(be_replaced)
    with pytest.raises(CorruptionError, match="the commit of epoch 2 was replaced by another writer"):
        job.epoch(rows(("ada", 2)))
    job.restart()
    assert found(folder) == {"ada": 2, "eve": 7}


def test_random_changes_leave_what_a_dict_holds(folder: DeltaFolder) -> None:
    choose = random.Random(7)
    job = changes(folder, parallelism=2)
    model: dict[str, int] = {}
    for _ in range(12):
        parts: list[list[dict[str, Any]]] = [[], []]
        for _ in range(choose.randrange(1, 40)):
            user, n = f"user-{choose.randrange(60)}", choose.randrange(1000)
            part = parts[int(user.removeprefix("user-")) % 2]
            if user in model and choose.random() < 0.4:
                part += changed((DELETE, user, model.pop(user)))
            elif user in model:
                part += changed((BEFORE, user, model[user]), (AFTER, user, n))
                model[user] = n
            else:
                part += changed((INSERT, user, n))
                model[user] = n
        job.epoch(*parts)
        assert found(folder) == dict(sorted(model.items()))


def test_keys_of_several_columns_in_a_partitioned_table(folder: DeltaFolder) -> None:
    schema = pa.schema([("day", pa.date32()), ("user", pa.string()), ("tags", pa.list_(pa.string()))])
    key = StreamKind(RowKind.UPSERT, ("day", "user"))
    sink = DeltaSink(f"file://{folder.root}", key=["user", "day"], partition_by=["day"])
    job = SinkHarness(sink, schema, kind=key)
    first, second = date(2024, 1, 1), date(2024, 1, 2)
    job.epoch([{"day": first, "user": "a", "tags": ["x"]}, {"day": second, "user": "a", "tags": []}])
    job.epoch([{"day": first, "user": "a", "tags": None}])
    assert sorted(folder.all_rows(), key=str) == [
        {"day": first, "user": "a", "tags": None},
        {"day": second, "user": "a", "tags": []},
    ]


def test_columns_that_rows_lack_keep_their_values(folder: DeltaFolder) -> None:
    kept = pa.table({"user": ["ada"], "n": [0], "note": ["old"]})
    write_deltalake(folder.root, kept)
    job = updates(folder)
    job.epoch(rows(("ada", 1), ("bob", 2)))
    assert sorted(folder.all_rows(), key=str) == [
        {"user": "ada", "n": 1, "note": "old"},
        {"user": "bob", "n": 2, "note": None},
    ]


def test_readers_of_the_change_data_feed_see_each_change(folder: DeltaFolder) -> None:
    sink = sink_of(folder, properties={"delta.enableChangeDataFeed": "true"})
    job = SinkHarness(sink, CHANGES, kind=CHANGES_BY_USER)
    job.epoch(changed((INSERT, "ada", 1), (INSERT, "bob", 1)))
    job.epoch(changed((BEFORE, "ada", 1), (AFTER, "ada", 2), (DELETE, "bob", 1)))
    feed = pa.table(folder.table().load_cdf(starting_version=2).read_all()).to_pylist()
    assert sorted((row["_change_type"], row["user"], row["n"]) for row in feed) == [
        (DELETE, "bob", 1),
        (AFTER, "ada", 2),
        (BEFORE, "ada", 1),
    ]


def test_the_table_records_the_epoch_as_a_transaction(folder: DeltaFolder) -> None:
    job = updates(folder)
    job.epoch(rows(("ada", 1)))
    app_id = f"lakestate/job/{sink_fingerprint('job', 'out', job.driver.claim.state_id)}"
    assert folder.table().transaction_version(app_id) == 1
    assert [each["appId"] for each in folder.actions("txn")] == [app_id, f"{app_id}/content"]


def refusal(act: Callable[[], Any]) -> LakestateError:
    with pytest.raises(LakestateError) as raised:
        act()
    return raised.value


NO_KEY: Sequence[tuple[StreamKind, dict[str, Any], str]] = [
    (UPDATES_BY_USER, {}, "sink out cannot take rows that change"),
    (CHANGES_BY_USER, {"key": ["n"]}, "sink out has another key than its rows"),
]


@pytest.mark.parametrize(("kind", "settings", "summary"), NO_KEY)
def test_rows_that_change_are_not_appended_without_meaning_to(
    folder: DeltaFolder, kind: StreamKind, settings: dict[str, Any], summary: str
) -> None:
    sink = DeltaSink(f"file://{folder.root}", **settings)
    error = refusal(lambda: sink.for_stream(kind, "sink out"))
    assert (type(error), error.summary) == (InvalidInputError, summary)


@pytest.mark.parametrize(
    ("schema", "summary"),
    [
        (pa.schema([("n", pa.int64())]), "key columns are not in the rows"),
        (pa.schema([("user", pa.float64()), ("n", pa.int64())]), "rows of a Delta table cannot be found by"),
    ],
)
def test_rows_without_a_usable_key_are_refused_before_the_first_epoch(
    folder: DeltaFolder, schema: pa.Schema, summary: str
) -> None:
    sink = sink_of(folder).for_stream(StreamKind(), "sink out")
    for act in (sink.check, sink.dry_run):
        assert refusal(lambda act=act: act(schema)).summary.startswith(summary)  # type: ignore[misc]
    assert not folder.root.exists()


def test_a_table_whose_rows_may_not_be_changed_is_refused(folder: DeltaFolder) -> None:
    DeltaTable.create(folder.root, ROWS, configuration={"delta.appendOnly": "true"})
    sink = sink_of(folder).for_stream(UPDATES_BY_USER, "sink out")
    for act in (sink.check, sink.dry_run):
        error = refusal(lambda act=act: act(ROWS))  # type: ignore[misc]
        assert (error.summary, error.found) == (
            "rows of the table may not be changed",
            "delta.appendOnly=true",
        )


def test_a_key_without_a_value_stops_the_epoch_before_it_is_published(folder: DeltaFolder) -> None:
    job = updates(folder)
    error = refusal(lambda: job.epoch([{"user": None, "n": 1}]))
    assert isinstance(error, OperatorError)
    assert error.summary == "sink refused rows: write to the table: a key column has no value"
    assert error.object_name == "user, operator out, subtask 0 of 1, epoch 1"
    assert found(folder) == {}


def test_a_column_with_which_deltalake_cannot_merge_is_refused(folder: DeltaFolder) -> None:
    given = pa.schema([*ROWS, ("a`b", pa.int64())])
    sink = sink_of(folder).for_stream(UPDATES_BY_USER, "sink out")
    for act in (sink.dry_run, sink.check):
        assert refusal(lambda act=act: act(given)).object_name == "a`b"  # type: ignore[misc]
    assert not folder.root.exists()
    DeltaTable.create(folder.root, given)
    assert refusal(lambda: sink.check(ROWS)).object_name == "a`b"


def test_a_word_that_is_no_change_stops_the_epoch(folder: DeltaFolder) -> None:
    job = changes(folder)
    error = refusal(lambda: job.epoch(changed(("upsert", "ada", 1))))
    assert (error.found, error.expected) == ("upsert", "insert, delete, update_preimage, update_postimage")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key": ["a", "a"]}, "a key column is named twice"),
        ({"key": "a", "roll": Roll(bytes="1MB")}, "with a key no file stays open"),
        ({"key": "a", "snapshot_open_files": True}, "with a key no file stays open"),
    ],
)
def test_settings_that_do_not_go_with_a_key_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        DeltaSink("/data/totals", **settings)


def test_a_sink_with_a_key_cannot_be_used_to_append(folder: DeltaFolder) -> None:
    with pytest.raises(InvalidInputError, match="a Delta sink with a key keeps no files open"):
        sink_of(folder).tables()
