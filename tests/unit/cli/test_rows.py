"""Rows of state tables: what is exported, what is streamed, what is told of damage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.command_line import run_command
from tests.unit.cli.test_damage import as_json, damage

import lakestate as ls
from lakestate.cli.commands import state as commands
from lakestate.cli.failures import ExitCode
from lakestate.cli.rows.listings import first_rows
from lakestate.inspection.exports import parquet_file
from lakestate.inspection.exports.parquet_file import write_parquet
from lakestate.storage import open_store

TOTALS = [
    {"user": "ada", "n": 2, "spend": 10.0},
    {"user": "bob", "n": 2, "spend": 3.0},
    {"user": "dan", "n": 1, "spend": 7.25},
    {"user": "eve", "n": 1, "spend": 4.0},
]


def test_an_export_holds_the_rows_that_a_restored_operator_would_see(state: Path) -> None:
    file = state.parent / "totals.parquet"
    assert run_command("export", "shop", "per_user", "totals", str(file)).code == 0
    assert pq.read_table(file).sort_by("user").to_pylist() == TOTALS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), TOTALS),
        (("--limit", "0"), TOTALS),
        (("--where", "spend > 5", "--columns", "user"), [{"user": "ada"}, {"user": "dan"}]),
        (("--key", "ada", "--epoch", "1"), [{"user": "ada", "n": 1, "spend": 9.5}]),
    ],
)
def test_the_rows_that_are_chosen_are_written(
    state: Path, options: tuple[str, ...], expected: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # All rows are written without --limit, also if fewer would be shown.
    monkeypatch.setattr(commands.state.params[_index_of("limit")], "default", 2)
    file = state.parent / "totals.parquet"
    assert run_command("state", "shop", "per_user", "totals", *options, "--to", str(file)).code == 0
    assert pq.read_table(file).sort_by("user").to_pylist() == expected


def _index_of(name: str) -> int:
    return [each.name for each in commands.state.params].index(name)


def test_what_comes_after_the_limit_is_not_read() -> None:
    def batches():  # type: ignore[no-untyped-def]
        yield pa.record_batch({"n": [1, 2]})
        yield pa.record_batch({"n": [3, 4]})
        raise AssertionError("read too much")

    rows = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    assert first_rows(rows, 3).read_all()["n"].to_pylist() == [1, 2, 3]


def test_an_export_into_a_store_is_uploaded_in_parts_and_appears_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_file, "PART_BYTES", 1000)
    monkeypatch.setattr(parquet_file, "ROWS_OF_A_GROUP", 10)
    schema = pa.schema([("n", pa.int64())])
    store = open_store("memory://export-parts")
    seen: list[int] = []

    def batches():  # type: ignore[no-untyped-def]
        for first in range(0, 5000, 50):
            assert not [*store.list()]
            yield pa.record_batch([pa.array(range(first, first + 50))], schema)

    rows = pa.RecordBatchReader.from_batches(schema, batches())
    done = write_parquet(rows, "memory://export-parts/n.parquet", {}, seen.append, overwrite=False)
    data = store.get("n.parquet").data
    assert (done.rows, done.size_bytes, seen[-1]) == (5000, len(data), 5000)
    assert pq.read_table(pa.BufferReader(data))["n"].to_pylist() == list(range(5000))


@pytest.mark.slow
def test_an_export_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "PART_BYTES", 100)
    schema = pa.schema([("n", pa.int64())])

    def batches():  # type: ignore[no-untyped-def]
        yield pa.record_batch([pa.array(range(3_000_000))], schema)
        raise RuntimeError("on fire")

    rows = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(RuntimeError, match="on fire"):
        write_parquet(rows, "memory://export-fails/n.parquet", {}, lambda n: None, overwrite=False)
    store = open_store("memory://export-fails")
    assert [*store.list()] == [*store.uploads.list_dangling()] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("state", "shop", "per_user", "totals"),
        ("state", "shop", "per_user", "totals", "--where", "n > 0"),
        ("sql", "shop", "SELECT * FROM totals"),
    ],
)
def test_a_damaged_data_file_is_told_by_name(state: Path, arguments: tuple[str, ...]) -> None:
    file = next((state / "shop/checkpoints/4/operator-per_user").glob("*.parquet"))
    damage(file)
    answer = run_command(*arguments)
    assert answer.code == ExitCode.DAMAGED
    assert file.name in answer.err
    assert run_command(*arguments, "--epoch", "3").code == 0


def test_columns_of_the_same_name_are_told_apart(state: Path) -> None:
    query = "SELECT a.user, b.user FROM totals a JOIN totals b USING (user) WHERE user = 'ada'"
    answer = run_command("sql", "shop", query, "--output", "json")
    assert json.loads(answer.out) == [{"user": "ada", "user_2": "ada"}]


def test_what_a_terminal_would_obey_is_shown_and_not_sent(state: Path) -> None:
    answer = run_command("sql", "shop", "SELECT 'a' || chr(27) || '[31m' || chr(10) AS x")
    assert answer.out.splitlines()[-1] == r"a\x1b[31m\n"


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_not_an_error(state: Path) -> None:
    query = "sql shop 'SELECT * FROM range(1000000)' --limit 0 -o csv"
    script = f"{sys.executable} -m lakestate.cli {query} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("range\n0\n", "")


class Place(msgspec.Struct, frozen=True):
    """A key with parts."""

    city: str
    number: int


@pytest.fixture
def odd_keys(state: Path) -> Path:
    """Keys that cannot be typed as they are, in tables whose names have dots."""
    tables = [
        ls.KeyedTable("by.bytes", key="k binary", value="n bigint"),
        ls.KeyedTable("flags", key="k boolean", value="m map<string,int>, t string"),
        ls.GlobalKeyedTable("places", key=Place, value=int),
        ls.GlobalKeyedTable("pairs", key=tuple[str, int], value=int),
    ]
    backend = ls.ParquetBackend(state)
    manager = ls.TableManager.load(ls.TaskInfo("odd", "an.op"), tables, backend, None)
    for epoch in (1, 2):
        manager.keyed("by.bytes").put(pa.table({"k": [b"abc", b"\x00\xff", None], "n": [epoch, 2, 3]}))
        flags = {"k": [True, None], "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32()))}
        manager.keyed("flags").put(pa.table({**flags, "t": ["", None]}))
        manager.global_keyed("places").insert(Place("Köln", 1), epoch)
        manager.global_keyed("pairs").insert(("a", 2), epoch)
        done = manager.checkpoint(epoch, 1, None, False)
        backend.write_checkpoint_metadata("odd", epoch, [done])
    return state


@pytest.mark.parametrize(
    ("table", "key", "found"),
    [
        ("by.bytes", "616263", [{"k": "616263", "n": 2}]),
        ("by.bytes", "00ff", [{"k": "00ff", "n": 2}]),
        ("by.bytes", '{"k": null}', [{"k": None, "n": 3}]),
        ("places", '{"city": "Köln", "number": 1}', [{"key": '{"city":"Köln","number":1}', "value": 2}]),
        (
            "places",
            '{"key": {"city": "K\\u00f6ln", "number": 1}}',
            [{"key": '{"city":"Köln","number":1}', "value": 2}],
        ),
        ("pairs", '["a", 2]', [{"key": '["a",2]', "value": 2}]),
        ("pairs", '{"key": ["a", 2]}', [{"key": '["a",2]', "value": 2}]),
    ],
)
def test_a_key_can_be_typed_as_it_is_shown(odd_keys: Path, table: str, key: str, found: list[object]) -> None:
    assert as_json("state", "odd", "an.op", table, "--key", key) == (0, found)


def test_a_key_that_no_row_has_is_told(odd_keys: Path) -> None:
    answer = run_command("state", "odd", "an.op", "pairs", "--key", '["b",2]')
    assert (answer.code, answer.err) == (0, "no row of epoch 2 has this key\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("state", "odd", "an.op", "by.bytes", "--key", "xyz"), "hexadecimal"),
        (("state", "odd", "an.op", "flags", "--key", "yes"), "write true or false"),
        (("diff", "odd", "1", "2", "--key", "7"), "a key of no table"),
        (("diff", "odd", "1", "2", "--table", "places"), "did you mean an.op.places?"),
        (("sql", "odd", "SELECT 1; SELECT 2"), "more than one query"),
        (("state", "odd", "an.op", "flags", "--where", "k", "--columns", "tt"), "no such column: tt"),
    ],
)
def test_what_would_be_misunderstood_is_refused(
    odd_keys: Path, arguments: tuple[str, ...], told: str
) -> None:
    answer = run_command(*arguments)
    assert (answer.code, told in answer.err) == (ExitCode.USAGE, True), answer.err


def test_names_of_operators_and_tables_may_have_dots(odd_keys: Path) -> None:
    code, rows = as_json("diff", "odd", "1", "2", "--table", "an.op.by.bytes")
    assert (code, [row["n"] for row in rows]) == (0, [1, 2])
    assert run_command("du", "odd", "--keys", "an.op.by.bytes").code == 0


def test_a_time_in_sql_is_in_utc(odd_keys: Path) -> None:
    assert as_json("sql", "odd", 'SELECT count(*) AS n FROM "pairs@2100-01-01T00:00"') == (0, [{"n": 1}])


def test_a_sum_of_integers_is_a_number(odd_keys: Path) -> None:
    query = "SELECT sum(value) AS n, 170141183460469231731687303715884105727 AS large FROM pairs"
    assert as_json("sql", "odd", query) == (0, [{"n": 2, "large": 2**127 - 1}])
