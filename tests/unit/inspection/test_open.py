"""`ls.open`: jobs, epochs, operators and tables as they are stored, and the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.clocks import SetClock
from tests.support.jobs.counter_table import CounterTable
from tests.support.jobs.four_tables import TABLES, Rows, run_history
from tests.support.jobs.table_job import TableJob
from tests.support.small_files import shape_as_large

import lakestate as ls
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.inspection import StateTable
from lakestate.tables.runs import parquet
from lakestate.testing import count_requests

WIDE = ls.KeyedTable("wide", key="k bigint", value="n bigint, text string", description="numbers as text")

TEXT_BYTES = 200


@pytest.fixture
def jobs() -> Iterator[list[TableJob]]:
    started: list[TableJob] = []
    yield started
    for job in started:
        job.close()


def start(jobs: list[TableJob], *tables: ls.Table, parallelism: int = 1, url: str | None = None) -> TableJob:
    jobs.append(TableJob(tables, parallelism, url))
    return jobs[-1]


def table_of(job: TableJob, name: str, epoch: int | None = None) -> StateTable:
    checkpoint = ls.open(job.backend.objects("job").store.url)
    return checkpoint.job("job").epoch("newest" if epoch is None else epoch).table("op", name)


def ordered(rows: Any) -> Rows:
    return sorted(rows.to_pylist(), key=repr)


def put_wide(job: TableJob, keys: np.ndarray) -> None:
    noise = np.random.default_rng(1).bytes(TEXT_BYTES * len(keys))
    texts = [noise[start : start + TEXT_BYTES].hex() for start in range(0, len(noise), TEXT_BYTES)]
    job.managers[0].keyed("wide").put(pa.table({"k": keys, "n": keys * 2, "text": texts}))
    job.checkpoint()


@pytest.fixture
def clocked(tmp_path: Path) -> str:
    """Two epochs of a job, published a minute apart, the first of them tagged."""
    clock = SetClock(now=1_000_000)
    backend = ls.ParquetBackend(tmp_path / "state", ambient=clock)
    table = ls.KeyedTable("t", key="k bigint", value="n bigint")
    tables = ls.TableManager.load(ls.TaskInfo("job", "op"), [table], backend, None)
    for epoch, now in ((1, 1_000_000), (2, 1_060_000)):
        clock.now = now
        tables.keyed("t").put(pa.table({"k": [epoch], "n": [epoch]}))
        done = tables.checkpoint(epoch, 1, epoch * 1000, False)
        backend.write_checkpoint_metadata("job", epoch, [done], watermark_us=epoch * 1000)
    backend.create_tag("job", "first", epoch=1)
    return f"file://{tmp_path}/state"


def test_jobs_are_found_by_their_folders_alone(tmp_path: Path, jobs: list[TableJob]) -> None:
    job = start(jobs, WIDE, url=f"file://{tmp_path}")
    for _ in range(20):
        put_wide(job, np.arange(3))
    ls.ParquetBackend(tmp_path).claim("claimed")
    (tmp_path / "output" / "day=1").mkdir(parents=True)
    (tmp_path / "output" / "day=1" / "rows.parquet").write_bytes(b"not state")
    checkpoint = ls.open(tmp_path)
    counting = count_requests(checkpoint._backend)
    assert checkpoint.job_names() == ["claimed", "job"]
    counted = counting.take()
    assert (counted.lists, counted.bytes_read) == (4, 0)
    assert [(info.job, info.epoch, info.status, info.epochs) for info in checkpoint.jobs()] == [
        ("claimed", None, "no epoch", 0),
        ("job", 20, "complete", 20),
    ]


def test_an_epoch_says_what_its_manifest_says(clocked: str) -> None:
    first, second = ls.open(clocked).job("job").epochs()
    assert (first.epoch, first.tags, second.tags) == (1, ("first",), ())
    moment = datetime(1970, 1, 1, 0, 17, 40, tzinfo=UTC)
    assert second == ls.EpochInfo(
        epoch=ls.Epoch(2),
        status="complete",
        committed=False,
        published=moment,
        started=moment,
        finished=moment,
        watermark_us=2000,
        rows=2,
        size_bytes=second.size_bytes,
        files=second.files,
        written_bytes=second.written_bytes,
        parent=ls.Epoch(1),
        generation=ls.Generation(1),
        operators=("op",),
    )
    assert second.watermark == datetime(1970, 1, 1, 0, 0, 0, 2000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("which", "epoch"),
    [
        (1, 1),
        ("2", 2),
        ("newest", 2),
        ("first", 1),
        (datetime(1970, 1, 1, 0, 17, 39, tzinfo=UTC), 1),
        (datetime(1970, 1, 1, 0, 17, 40, tzinfo=UTC), 2),
        ("1970-01-01T00:17:39+00:00", 1),
        ("1970-01-01T00:17:39", 1),
        (datetime(2100, 1, 1, tzinfo=UTC), 2),
    ],
    ids=str,
)
def test_an_epoch_is_found_by_number_tag_and_time(
    clocked: str, which: int | str | datetime, epoch: int
) -> None:
    assert ls.open(clocked).job("job").epoch(which).epoch == epoch


@pytest.mark.parametrize(
    ("which", "told"),
    [
        (7, "epoch 7 cannot be opened.*found newest epochs 2, 1"),
        ("frist", "no such tag: frist; found first; .*did you mean first"),
        ("nothing", "no such tag: nothing; found first; .*newest"),
        (datetime(1970, 1, 1, 0, 16, tzinfo=UTC), "had been published by then.*1970-01-01T00:16:40"),
    ],
    ids=str,
)
def test_an_epoch_that_is_not_there_is_told_with_what_is(
    clocked: str, which: int | str | datetime, told: str
) -> None:
    with pytest.raises(NotFoundError, match=told):
        ls.open(clocked).job("job").epoch(which)


def test_a_time_without_a_zone_is_refused(clocked: str) -> None:
    with pytest.raises(InvalidInputError, match="a time without a zone"):
        ls.open(clocked).job("job").epoch(datetime(2026, 1, 1))


def test_an_unknown_job_is_told_with_the_jobs_there_are(clocked: str) -> None:
    for ask in (lambda job: job.epochs(), lambda job: job.epoch()):
        with pytest.raises(NotFoundError, match=r"no such job below .*: jib; found job; .*did you mean job"):
            ask(ls.open(clocked).job("jib"))


def test_a_damaged_epoch_is_shown_beside_the_sound_ones(clocked: str) -> None:
    manifest = Path(clocked.removeprefix("file://")) / "job" / "checkpoints" / "1" / "manifest.pb"
    manifest.write_bytes(b"?" + manifest.read_bytes()[1:])
    damaged, sound = ls.open(clocked).job("job").epochs()
    assert (damaged.epoch, damaged.status, sound.epoch, sound.status) == (1, "damaged", 2, "complete")
    assert "checksum" in str(damaged.problem)


def test_a_table_says_how_it_was_declared_and_how_large_it_is(jobs: list[TableJob]) -> None:
    job = start(jobs, WIDE, *TABLES, parallelism=1)
    put_wide(job, np.arange(10))
    state = ls.open(job.backend.objects("job").store.url).job("job").epoch()
    (operator,) = state.operators()
    assert (operator.operator, operator.parallelism, operator.rows) == ("op", 1, 10)
    assert [info.table for info in state.tables()] == ["clicks", "limits", "seen", "totals", "wide"]
    wide = state.table("op", "wide")
    assert wide.info == state.tables("op")[-1]
    assert wide.info == ls.TableInfo(
        operator="op",
        table="wide",
        type="keyed",
        key="k bigint",
        value="n bigint, text string",
        version=1,
        rows=10,
        size_bytes=wide.info.size_bytes,
        files=1,
        versions=(1,),
        description="numbers as text",
    )
    assert wide.schema.names == ["k", "n", "text"]
    assert (wide.key_columns, wide.value_columns) == (("k",), ("n", "text"))
    assert (wide.declaration, wide.count(), wide.count({"k": [1, 2, 99]})) == (WIDE.config, 10, 2)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [ExitStack, shape_as_large], ids=["small files", "many row groups"])
def test_every_library_reads_what_the_model_says(
    jobs: list[TableJob], shape: Callable[[], ExitStack]
) -> None:
    with shape():
        job = start(jobs, *TABLES, parallelism=2)
        history = run_history(job, seed=5)
    for epoch in (4, 12):
        for name, rows in history[epoch].items():
            table = table_of(job, name, epoch)
            assert ordered(table.to_arrow()) == rows
            assert ordered(table.to_polars().to_arrow()) == rows
            assert len(table.to_pandas()) == table.count() == len(rows)
            with duckdb.connect() as connection:
                assert ordered(table.to_duckdb(connection).arrow().read_all()) == rows
                for _ in range(2):
                    found = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
                    assert found == (len(rows),)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [ExitStack, shape_as_large], ids=["small files", "many row groups"])
def test_filters_select_what_the_model_says(jobs: list[TableJob], shape: Callable[[], ExitStack]) -> None:
    with shape():
        job = start(jobs, *TABLES, parallelism=2)
        history = run_history(job, seed=6)
    for epoch, rows in history.items():
        totals, clicks = table_of(job, "totals", epoch), table_of(job, "clicks", epoch)
        users = ["user-1", "user-7", "nobody"]
        of_users = [row for row in rows["totals"] if row["user"] in users]
        assert ordered(totals.to_arrow({"user": users})) == of_users
        assert ordered(totals.get([{"user": user} for user in users])) == of_users
        pairs = [{"user": user, "item": item} for user, item in zip(users, (0, 1, 2), strict=True)]
        wanted = [row for row in rows["totals"] if {"user": row["user"], "item": row["item"]} in pairs]
        assert ordered(totals.get(pairs)) == wanted
        assert ordered(totals.to_arrow({"item": 1})) == [row for row in rows["totals"] if row["item"] == 1]
        assert ordered(totals.to_arrow({"user": users, "n": [row["n"] for row in of_users]})) == of_users
        many = totals.to_arrow(pc.field("n") > 50, columns=["item", "user"])
        expected = [{"item": row["item"], "user": row["user"]} for row in rows["totals"] if row["n"] > 50]
        assert ordered(many) == sorted(expected, key=repr)
        of_one = [{"n": row["n"]} for row in rows["clicks"] if row["user"] == "user-3"]
        assert ordered(clicks.get("user-3", columns=["n"])) == sorted(of_one, key=repr)
        limits = table_of(job, "limits", epoch)
        assert ordered(limits.get(["a", "c"])) == [row for row in rows["limits"] if row["key"] in "ac"]


def test_a_key_is_found_by_reading_a_few_row_groups(
    jobs: list[TableJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 1000)
    job = start(jobs, WIDE, parallelism=1)
    put_wide(job, np.arange(60_000))
    put_wide(job, np.arange(0, 60_000, 3))
    checkpoint = ls.open(job.backend.objects("job").store.url)
    counting = count_requests(checkpoint._backend)
    table = checkpoint.job("job").epoch().table("op", "wide")
    state_bytes = table.info.size_bytes
    counting.take()
    assert table.get({"k": 42}, columns=["n"]).to_pylist() == [{"n": 84}]
    found = counting.take().bytes_read
    assert table.count({"k": [42, 43]}) == 2
    assert table.get({"k": 99_999}).num_rows == 0
    assert table.count() == 60_000
    assert found < state_bytes / 8


def test_rows_with_null_keys_are_found(jobs: list[TableJob]) -> None:
    table = ls.KeyedTable("t", key="a string, b double", value="n bigint")
    job = start(jobs, table)
    rows = {"a": [None, None, "x"], "b": [None, float("nan"), -0.0], "n": [1, 2, 3]}
    job.managers[0].keyed("t").put(
        pa.table(rows, schema=pa.schema([("a", "string"), ("b", "double"), ("n", "int64")]))
    )
    job.checkpoint()
    found = table_of(job, "t")
    assert [
        found.get({"a": None, "b": None})["n"].to_pylist(),
        found.get({"b": float("nan")})["n"].to_pylist(),
    ] == [[1], [2]]
    assert sorted(found.to_arrow({"a": None})["n"].to_pylist()) == [1, 2]
    assert found.to_arrow({"a": "x", "b": 0.0})["n"].to_pylist() == [3]


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda t: t.to_arrow({"kk": 1}), "no such column: kk; found k, n, text; .*did you mean k"),
        (lambda t: t.to_arrow({"k": "one"}), "a value does not fit its column: k; .*expected int64"),
        (lambda t: t.to_arrow({"k": 2**70}), "a value does not fit its column: k"),
        (lambda t: t.to_arrow({"k": 1.5}), "a value does not fit its column: k; found 1.5"),
        (lambda t: t.to_arrow(pc.field("z") > 1), "cannot be filtered so"),
        (lambda t: t.to_arrow("k = 1"), "not a filter"),
        (lambda t: t.to_arrow(columns=["z"]), "no such column: z"),
        (lambda t: t.to_arrow(columns=[]), "no column is named"),
        (lambda t: t.get({"n": 1}), "no such key column: n"),
        (lambda t: t.get([{"k": 1}, 7]), "not a key of table wide"),
    ],
    ids=range(10),
)
def test_a_filter_that_cannot_be_meant_is_refused(
    jobs: list[TableJob], ask: Callable[[StateTable], object], told: str
) -> None:
    job = start(jobs, WIDE)
    put_wide(job, np.arange(3))
    with pytest.raises(InvalidInputError, match=told):
        ask(table_of(job, "wide"))


def test_a_type_from_elsewhere_is_filtered_after_it_is_read(jobs: list[TableJob]) -> None:
    job = start(jobs, CounterTable("seen", key="word"))
    for word in ("ada", "ada", "bob"):
        job.managers[0].view("seen").add(word)  # type: ignore[attr-defined]
    job.checkpoint()
    table = table_of(job, "seen")
    assert table.get("ada").to_pylist() == [{"word": "ada", "n": 2}]
    assert table.to_arrow({"n": 1}, columns=["word"]).to_pylist() == [{"word": "bob"}]


def test_jobs_epochs_and_tables_show_themselves_in_a_notebook(clocked: str) -> None:
    checkpoint = ls.open(clocked)
    state = checkpoint.job("job").epoch()
    shown = [
        each._repr_html_() for each in (checkpoint, checkpoint.job("job"), state, state.table("op", "t"))
    ]
    assert ["<td>complete</td>" in shown[0], "<td>first</td>" in shown[1]] == [True, True]
    assert ["<td>k bigint</td>" in shown[2], "<th>n</th>" in shown[3]] == [True, True]
    assert repr(state.operators()).splitlines()[0].split()[:3] == ["operator", "parallelism", "rows"]
    assert checkpoint.jobs().to_arrow()["job"].to_pylist() == ["job"]


def test_a_notebook_shows_rows_of_state_as_they_are(jobs: list[TableJob]) -> None:
    job = start(jobs, ls.KeyedTable("t", key="k timestamp", value="n bigint, x double, s string"))
    moment = datetime(2026, 1, 1, 12, 0, 0, 6, tzinfo=UTC)
    job.managers[0].keyed("t").put(pa.table({"k": [moment], "n": [1234567], "x": [1234567.25], "s": [""]}))
    job.checkpoint()
    shown = ls.open(job.backend.url).job("job").epoch().table("op", "t")._repr_html_()
    cells = ("2026-01-01 12:00:00.000006Z", "1234567", "1234567.25", "&quot;&quot;")
    assert "".join(f"<td>{cell}</td>" for cell in cells) in shown


def test_a_tag_that_looks_like_a_date_is_a_tag(clocked: str) -> None:
    ls.ParquetBackend(clocked).create_tag("job", "2026-05-01", epoch=1)
    assert ls.open(clocked).job("job").epoch("2026-05-01").epoch == 1


def test_a_time_whose_newest_epoch_is_gone_is_refused(clocked: str) -> None:
    """Whoever goes back to a time would go back further than that."""
    Path(clocked.removeprefix("file://"), "job/epochs/0000000002.json").rename(
        Path(clocked.removeprefix("file://"), "job/epochs/0000000003.json.gone")
    )
    backend = ls.ParquetBackend(clocked)
    job = backend.objects("job")
    later = replace(job.read_epoch(ls.Epoch(1)), epoch=ls.Epoch(3), published_at_ms=2_000_000)  # type: ignore[type-var]
    job.store.create(job.store_path(job.paths.epoch_record(ls.Epoch(3))), later.encode())
    with pytest.raises(NotFoundError, match=r"not known.*found epoch 2 not retained, between epochs 1 and 3"):
        ls.open(clocked).job("job").epoch("1970-01-01T00:17:00")


@pytest.mark.parametrize("name", ["newest", "1", "20260501"])
def test_a_tag_cannot_have_a_name_that_means_another_epoch(clocked: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match="not a valid tag name"):
        ls.ParquetBackend(clocked).create_tag("job", name, epoch=1)


def test_a_damaged_tag_hides_no_other(clocked: str) -> None:
    job = ls.open(clocked).job("job")
    Path(clocked.removeprefix("file://"), "job/tags/broken.json").write_text("{}")
    assert job.tags() == {"first": 1}
    assert [(info.epoch, info.tags) for info in job.epochs()] == [(1, ("first",)), (2, ())]
    assert job.epoch("first").epoch == 1
