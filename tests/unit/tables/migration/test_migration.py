"""Files of older state versions are read as the declared one, or refused by name."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.jobs.older_files import (
    ADA,
    BOB,
    EVE,
    FILE,
    V1,
    Row,
    file_rows,
    layout_of,
    refusal,
    upgraded,
)

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.table_types import TIME_KEY
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.migration.migrations import (
    ArrowMigration,
    ColumnChanges,
    Migration,
    RowMigration,
    check_migrations,
    upgrade_of,
    versions_covered,
)
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.layout import HASH, UPDATED, RunLayout

NEVER_US = 2**63 - 1


def test_a_file_of_the_current_version_passes_through_without_a_copy() -> None:
    stored = file_rows(V1, [ADA, BOB])
    assert upgrade_of(V1)(stored, CheckpointParquetMetadata.of(V1.config), FILE) is stored


CHAIN: tuple[Migration, ...] = (
    ColumnChanges(1, drop=["old"], widen={"n": "bigint"}),
    ArrowMigration(2, lambda rows: rows.set_column(1, "n", pc.multiply(rows["n"], 10))),
    RowMigration(3, lambda row: {"user": row["user"], "text": f"n={row['n']}"}),
)
V2 = layout_of("user string", "n bigint", 2)
V3 = layout_of("user string", "n bigint", 3)
V4 = layout_of("user string", "text string", 4, migrations=CHAIN)


@pytest.mark.parametrize(
    ("old", "row", "text"),
    [
        (V1, ADA, "n=10"),
        (V2, {"user": "ada", "n": 5}, "n=50"),
        (V3, {"user": "ada", "n": 5}, "n=5"),
        (V4, {"user": "ada", "text": "as it is"}, "as it is"),
    ],
    ids=["1 to 4", "2 to 4", "3 to 4", "4"],
)
def test_files_of_all_versions_of_one_table_are_read(old: RunLayout, row: Row, text: str) -> None:
    assert upgraded(old, V4, CHAIN, [row]) == [{"user": "ada", "text": text}]


def recorded(seen: list[Any]) -> tuple[Migration, ...]:
    def keep(value: Any) -> Any:
        seen.append(value.to_pylist() if isinstance(value, pa.Table) else dict(value))
        return value

    return (ArrowMigration(1, keep), RowMigration(2, keep))


def test_removed_rows_stay_removed_and_no_code_sees_them() -> None:
    seen: list[Any] = []
    new = layout_of("user string", "n int, old string", 3)
    found = upgraded(V1, new, recorded(seen), [ADA, BOB, EVE], {0, 2})
    nothing = {"n": None, "old": None}
    assert found == [{"user": "ada"} | nothing, BOB, {"user": "eve"} | nothing]
    assert seen == [[BOB], BOB]


def test_a_file_in_several_chunks_is_migrated_as_a_whole() -> None:
    stored = pa.concat_tables([file_rows(V1, [ADA, BOB], {0}), file_rows(V1, [EVE]), file_rows(V1, [ADA])])
    identity = CheckpointParquetMetadata.of(V1.config)
    found = upgrade_of(V4, CHAIN)(stored, identity, FILE).select(["user", "text"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("ada", None),
        ("bob", "n=20"),
        ("eve", "n=None"),
        ("ada", "n=10"),
    ]


def test_an_upgrade_travels_to_other_processes() -> None:
    step = ColumnChanges(1, widen={"n": "bigint"}, drop=["old"])
    upgrade = pickle.loads(pickle.dumps(upgrade_of(V2, [step])))
    found = upgrade(file_rows(V1, [ADA]), CheckpointParquetMetadata.of(V1.config), FILE)
    assert found.equals(file_rows(V2, [{"user": "ada", "n": 1}]))


@pytest.mark.parametrize("count", [0, 2])
def test_no_code_runs_if_no_row_exists(count: int) -> None:
    seen: list[Any] = []
    new = layout_of("user string", "other array<int>", 3)
    found = upgraded(V1, new, recorded(seen), [ADA, BOB][:count], {0, 1})
    assert found == [{"user": "ada", "other": None}, {"user": "bob", "other": None}][:count]
    assert seen == []


def test_keys_that_are_null_nan_or_zero_are_the_same_keys() -> None:
    old, new = layout_of("k double, j string", "v int"), layout_of("k double, j string", "v int", 2)
    rows: list[Row] = [
        {"k": key, "j": None, "v": number} for number, key in enumerate([float("nan"), None, -0.0])
    ]
    step = RowMigration(1, lambda row: row | {"v": row["v"] + 1})
    found = upgraded(old, new, [step], rows)
    assert [row["v"] for row in found] == [1, 2, 3]
    assert str([row["k"] for row in found]) == "[nan, None, -0.0]"


def test_the_hash_of_a_finer_key_is_kept() -> None:
    old = layout_of("user string, item int", "v int", route_by=["user"])
    new = layout_of("who string, item int", "v bigint", 2, route_by=["who"])
    stored = file_rows(old, [{"user": "ada", "item": 1, "v": 2}])
    step = ColumnChanges(1, rename={"user": "who"}, widen={"v": "bigint"})
    found = upgrade_of(new, [step])(stored, CheckpointParquetMetadata.of(old.config), FILE)
    assert found.schema == new.schema
    assert found[HASH].equals(stored[HASH])


@pytest.mark.parametrize("version", [1, 2])
def test_rows_from_before_a_time_to_live_never_expire(version: int) -> None:
    new = layout_of("user string", "n int, old string", version, ttl="1 hour")
    steps = [RowMigration(1, dict)] if version == 2 else []
    found = upgrade_of(new, steps)(file_rows(V1, [ADA]), CheckpointParquetMetadata.of(V1.config), FILE)
    assert found.schema == new.schema
    assert found[UPDATED].cast(pa.int64()).to_pylist() == [NEVER_US]


def test_the_time_of_writing_is_kept_and_goes_with_the_time_to_live() -> None:
    old = layout_of("user string", "n int, old string", ttl="1 hour")
    stored, identity = file_rows(old, [ADA, BOB]), CheckpointParquetMetadata.of(old.config)
    still = layout_of("user string", "n int, old string", 2, ttl="2 hours")
    assert upgrade_of(still, [RowMigration(1, dict)])(stored, identity, FILE)[UPDATED].equals(stored[UPDATED])
    assert upgrade_of(V1)(stored, identity, FILE).equals(file_rows(V1, [ADA, BOB]))


def test_a_newer_version_is_refused() -> None:
    new = layout_of("user string", "n int, old string", 3)
    message = refusal(new, V1, [], [ADA])
    assert "found version 3; expected version 1" in message
    assert "run the newer code" in message


def test_a_version_without_a_chain_is_refused() -> None:
    message = refusal(V1, V4, CHAIN[1:], [ADA])
    assert "found version 1; expected version 4" in message
    assert "declare a migration from version 1" in message


def test_other_columns_in_the_same_version_are_refused() -> None:
    assert "n int32, old string" in refusal(V1, layout_of("user string", "n bigint"), [], [ADA])


def test_a_failing_migration_names_the_step_and_keeps_the_cause() -> None:
    def broken(_: Row) -> Row:
        raise ZeroDivisionError("by zero")

    new = layout_of("user string", "n int", 2)
    with pytest.raises(IncompatibleStateError, match="from state version 1 to 2 failed") as caught:
        upgraded(V1, new, [RowMigration(1, broken)], [ADA])
    assert "ZeroDivisionError: by zero" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def same(rows: pa.Table) -> pa.Table:
    return rows


BROKEN: dict[str, tuple[Callable[[pa.Table], Any], str]] = {
    "no table": (lambda rows: rows.to_pylist(), "no table was returned; found list"),
    "fewer rows": (lambda rows: rows.slice(1), "the number of rows changed; found 1; expected 2"),
    "other order": (lambda rows: rows.take([1, 0]), "user in row 0; found 'bob'; expected 'ada'"),
    "no key": (lambda rows: rows.drop_columns(["user"]), "a key column is gone: user"),
    "key of another type": (
        lambda rows: rows.set_column(0, "user", rows["user"].cast(pa.binary())),
        "a key column has another type: user; found binary; expected string",
    ),
    "a name twice": (lambda rows: rows.append_column("n", rows["n"]), "two columns have one name"),
    "missing column": (lambda rows: rows.drop_columns(["old"]), "found no column old"),
    "extra column": (lambda rows: rows.append_column("x", rows["n"]), "found extra column x"),
    "wrong type": (
        lambda rows: rows.set_column(1, "n", rows["n"].cast(pa.string())),
        "found column n of type string; expected int32",
    ),
    "narrower declared": (
        lambda rows: rows.set_column(1, "n", rows["n"].cast(pa.int64())),
        "found column n of type int64; expected int32",
    ),
    "unknown type": (
        lambda rows: rows.set_column(1, "n", rows["n"].cast(pa.uint32())),
        "found column n of type uint32; expected int32",
    ),
}


@pytest.mark.parametrize(("migrate", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_result_that_does_not_fit_is_refused(migrate: Callable[[pa.Table], Any], reason: str) -> None:
    new = layout_of("user string", "n int, old string", 2)
    assert reason in refusal(V1, new, [ArrowMigration(1, migrate)], [ADA, BOB])


def test_other_representations_of_a_type_fit() -> None:
    def encode(rows: pa.Table) -> pa.Table:
        text = pa.array(["x", "y"]).dictionary_encode()
        return pa.table({"user": rows["user"], "n": rows["n"], "old": text, "none": pa.nulls(2)})

    new = layout_of("user string", "n bigint, old string, none array<int>", 2)
    found = upgraded(V1, new, [ArrowMigration(1, encode)], [ADA, BOB])
    assert found == [ADA | {"none": None}, BOB | {"old": "y", "none": None}]


def test_null_in_a_column_that_may_not_be_null_is_refused() -> None:
    new = layout_of("user string", "n int not null, old string", 2)
    assert "column n with 1 nulls" in refusal(V1, new, [ArrowMigration(1, same)], [ADA, EVE])
    assert upgraded(V1, new, [ArrowMigration(1, same)], [ADA, EVE], {1})[1]["n"] is None


WRONG_ROWS: dict[str, tuple[Callable[[Row], Any], str]] = {
    "no dict": (lambda row: None, "no dict was returned: row 0; found NoneType"),
    "another key": (lambda row: row | {"user": "x"}, "user in row 0; found 'x'; expected 'ada'"),
    "other names": (lambda row: row if row["n"] == 1 else {"user": "bob"}, "row 1; found user; expected"),
    "a fraction": (lambda row: row | {"n": 1.5}, "n; found 1.5; expected int32"),
    "too large": (lambda row: row | {"n": row["n"] << 31}, "n; found 2147483648; expected int32"),
    "text for a number": (lambda row: row | {"n": "1"}, "n; found '1'; expected int32"),
}


@pytest.mark.parametrize(("migrate", "reason"), WRONG_ROWS.values(), ids=WRONG_ROWS.keys())
def test_a_row_that_does_not_fit_is_refused(migrate: Callable[[Row], Any], reason: str) -> None:
    new = layout_of("user string", "n int, old string", 2)
    assert reason in refusal(V1, new, [RowMigration(1, migrate)], [ADA, BOB])


def test_rows_keep_types_that_python_does_not_have() -> None:
    value = "m map<string,tinyint>, d decimal(9,4), s struct<a:float>, t timestamp_ntz"
    old, new = layout_of("k smallint", value), layout_of("k smallint", value, 3)
    row = {
        "k": 1,
        "m": [("a", 1)],
        "d": Decimal("1.2500"),
        "s": {"a": pytest.approx(0.1, rel=1e-6)},
        "t": datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
    }
    steps = [RowMigration(1, dict), RowMigration(2, dict)]
    assert upgraded(old, new, steps, [row | {"s": {"a": 0.1}}]) == [row]


def time_layout(time: str, version: int) -> RunLayout:
    columns = columns_of(f"{time} timestamp, v int", what="value")
    keys = columns_of("k int", what="key")
    config = TableConfig(
        "users", TIME_KEY, version, "", keys, columns, ("k",), time_column=time, retention_us=1
    )
    return RunLayout(config)


def times_upgraded(step: Migration) -> list[Row]:
    old, new = time_layout("ts", 1), time_layout("at", 2)
    rows = pa.table(
        [pa.array([5, 6], pa.uint64()), *(pa.array([1, 2]).cast(field.type) for field in old.row_schema)],
        schema=old.schema,
    )
    found = upgrade_of(new, [step])(rows, CheckpointParquetMetadata.of(old.config), FILE)
    result: list[Row] = (
        found.select(["k", "at", "v"]).set_column(1, "at", found["at"].cast("int64")).to_pylist()
    )
    return result


def test_a_time_column_can_be_renamed() -> None:
    expected = [{"k": 1, "at": 1, "v": 1}, {"k": 2, "at": 2, "v": 2}]
    assert times_upgraded(ColumnChanges(1, rename={"ts": "at"})) == expected


def test_event_times_of_a_table_by_time_may_not_change() -> None:
    step = ColumnChanges(1, drop=["ts"], add={"at": ("timestamp", datetime.datetime.now(datetime.UTC))})
    with pytest.raises(IncompatibleStateError, match="found other times in column at"):
        times_upgraded(step)


def test_versions_with_an_unbroken_chain_are_covered() -> None:
    steps = [RowMigration(number, dict) for number in (1, 2, 4, 5)]
    assert versions_covered(steps, 6) == {4, 5}
    assert versions_covered(steps[:2], 3) == {1, 2}
    assert versions_covered(steps[:2], 4) == frozenset()
    assert versions_covered([], 1) == frozenset()


@pytest.mark.parametrize("numbers", [(1, 1), (2, 1), (3,), (1, 4)])
def test_steps_that_are_repeated_unsorted_or_too_new_are_refused(numbers: Sequence[int]) -> None:
    with pytest.raises(InvalidInputError, match="migrations do not lead up to the table's version"):
        versions_covered([RowMigration(number, dict) for number in numbers], 3)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, 2**31])
def test_only_whole_numbers_from_one_are_versions(version: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a state version"):
        versions_covered([], version)
    with pytest.raises(InvalidInputError, match="not a state version"):
        ColumnChanges(version, drop=["a"])


def test_only_migrations_are_taken() -> None:
    with pytest.raises(InvalidInputError, match="not a migration; found builtin"):
        versions_covered([len], 2)  # type: ignore[list-item]
    with pytest.raises(InvalidInputError, match="a migration needs a function; found int"):
        ArrowMigration(1, 5)  # type: ignore[arg-type]


def test_what_code_does_to_columns_is_not_guessed_at_declaration() -> None:
    keys, values = columns_of("k int", what="key"), columns_of("v int", what="value")
    unknown = ColumnChanges(1, drop=["whatever"], rename={"x": "y"})
    check_migrations([unknown, RowMigration(2, dict)], 3, keys, values)
    check_migrations([unknown], 3, keys, values)
    with pytest.raises(InvalidInputError, match="y"):
        check_migrations([unknown], 2, keys, values)
