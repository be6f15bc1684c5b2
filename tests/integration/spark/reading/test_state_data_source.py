"""`spark.read.format("lakestate")`: rows, changes and metadata of a state table as DataFrames and streams."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.table_job import EAGER, TableJob
from tests.support.repository import ROOT

import lakestate as ls
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.tables.runs import parquet

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException, StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = ls.KeyedTable("t", key="k bigint", value="n bigint, at timestamp, tags array<string>")
NAMES = ls.GlobalKeyedTable("names", key=str, value=int)
SCHEMA = pa.schema(
    [("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]
)
FILTERS = "spark.sql.python.filterPushdown.enabled"


class StateJob:
    """A job on local files whose state is a dict."""

    def __init__(self, folder: Path) -> None:
        self.job = TableJob([TABLE, NAMES], 2, f"file://{folder}")
        self.model: dict[int, int] = {}

    def epoch(self, puts: dict[int, int], deletes: tuple[int, ...] = ()) -> None:
        for index, manager in enumerate(self.job.managers):
            mine = {key: puts[key] for key in self._owned([*puts], index)}
            rows = [
                {"k": k, "n": n, "at": n * 1_000_000, "tags": [str(n)] * (n % 3)} for k, n in mine.items()
            ]
            manager.keyed("t").put(pa.Table.from_pylist(rows, SCHEMA))
            manager.keyed("t").delete(pa.table({"k": pa.array(self._owned([*deletes], index), pa.int64())}))
        self.job.managers[0].global_keyed("names").insert("rows", len(self.model))
        self.model = {k: n for k, n in (self.model | puts).items() if k not in deletes}
        self.job.checkpoint()

    def _owned(self, keys: list[int], index: int) -> list[int]:
        owners = subtasks_of(routing_keys([pa.array(keys, pa.int64())]), self.job.parallelism)
        return [key for key, owner in zip(keys, owners.tolist(), strict=True) if owner == index]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateJob]:
    job = StateJob(tmp_path / "state")
    yield job
    job.job.close()


def read(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    ls.register(spark)
    named = {"job": "job", "operator": "op", "table": "t"} | options
    reader = spark.read.format("lakestate")
    for name, value in named.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(str(folder / "state"))


def pairs(frame: DataFrame) -> dict[int, int]:
    return {row.k: row.n for row in frame.collect()}


def test_rows_of_an_epoch_are_read_in_parallel(
    spark: SparkSession, tmp_path: Path, state: StateJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 500)
    numbers = np.arange(4000)
    state.epoch({int(k): int(k) * 2 for k in numbers})
    state.job.backend.create_tag("job", "first")
    first = dict(state.model)
    state.epoch({1: 7, 5000: 8}, deletes=(2,))
    frame = read(spark, tmp_path, partitionBytes="8KB")
    assert frame.schema.simpleString() == "struct<k:bigint,n:bigint,at:timestamp,tags:array<string>>"
    assert (pairs(frame), frame.rdd.getNumPartitions() > 4) == (state.model, True)
    assert pairs(read(spark, tmp_path, epoch="first")) == first
    assert pairs(read(spark, tmp_path, epoch=2)) == state.model
    chosen = read(spark, tmp_path, columns="n, k", where=json.dumps({"k": [1, 2, 3]}))
    assert (chosen.columns, pairs(chosen)) == (["n", "k"], {1: 7, 3: 6})
    assert chosen.rdd.getNumPartitions() <= 2
    row = frame.where("k = 4").first()
    assert row is not None
    assert (row.tags, row.at.timestamp()) == (["8", "8"], 8.0)
    names = read(spark, tmp_path, table="names")
    assert [(row.key, row.value) for row in names.collect()] == [("rows", 4000)]


def test_conditions_on_keys_are_pushed_down(spark: SparkSession, tmp_path: Path, state: StateJob) -> None:
    state.epoch({k: k for k in range(50)})
    spark.conf.set(FILTERS, "true")
    try:
        frame = read(spark, tmp_path)
        found = frame.where("k in (3, 4) and n < 4")
        assert (pairs(found), found.rdd.getNumPartitions() <= 2) == ({3: 3}, True)
        one = frame.where("k = 3")
        assert (pairs(one), one.rdd.getNumPartitions()) == ({3: 3}, 1)
        assert pairs(frame.where("k = 3.5 or n = 7")) == {7: 7}
        changes = read(spark, tmp_path, startEpoch=1).where("k = 5 and _epoch = 1")
        assert [(row.k, row._change) for row in changes.collect()] == [(5, "insert")]
    finally:
        spark.conf.unset(FILTERS)
        ls.register(spark)


def test_changes_come_with_their_epoch(spark: SparkSession, tmp_path: Path, state: StateJob) -> None:
    state.epoch({1: 1, 2: 2})
    state.epoch({1: 10}, deletes=(2,))
    state.epoch({3: 3})
    assert read(spark, tmp_path, startEpoch=4).count() == 0
    frame = read(spark, tmp_path, startEpoch=2, endEpoch=3)
    found = sorted((row._epoch, row._change, row.k, row.n, row._expired) for row in frame.collect())
    assert found == [
        (2, "delete", 2, 2, False),
        (2, "update_postimage", 1, 10, False),
        (2, "update_preimage", 1, 1, False),
        (3, "insert", 3, 3, False),
    ]
    state.job.retain(1)
    with pytest.raises(PySparkException, match=r"epochs that they begin or end with are not there.*epoch 1"):
        read(spark, tmp_path, startEpoch=2).collect()


def test_a_stream_of_changes_is_exact_over_restarts(
    spark: SparkSession, tmp_path: Path, state: StateJob
) -> None:
    ls.register(spark)
    seen: dict[int, int] = {}
    epochs: list[tuple[int, ...]] = []

    def apply(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        epochs.append(tuple(sorted({row._epoch for row in rows})))
        for row in rows:
            if row._change in ("delete", "update_preimage"):
                assert seen.pop(row.k) == row.n
        for row in rows:
            if row._change in ("insert", "update_postimage"):
                assert row.k not in seen
                seen[row.k] = row.n

    def run(**options: str) -> None:
        names = {"job": "job", "operator": "op", "table": "t", "readChangeFeed": "true", **options}
        stream = spark.readStream.format("lakestate").options(**names)
        query = (
            stream.load(str(tmp_path / "state"))
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", str(tmp_path / "spark"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    state.epoch({k: k for k in range(20)})
    state.epoch({1: 100}, deletes=(3,))
    run()
    assert (seen, epochs) == (state.model, [(2,)])
    state.epoch({1: 101, 50: 5})
    state.job.compact(EAGER)
    state.job.restart(parallelism=3)
    state.epoch({}, deletes=(1, 2))
    run()
    run()
    assert (seen, epochs) == (state.model, [(2,), (3,), (4,)])
    state.epoch({7: 70})
    run(reader="copy")
    for n in range(3):
        state.epoch({n: n + 30})
    state.job.retain(1)
    run(reader="copy")
    assert (seen, epochs[3:]) == (state.model, [(5,), (8,)])
    assert {tag.name for tag in state.job.backend.tags("job")} <= {"reader-copy-5", "reader-copy-8"}
    for n in range(3):
        state.epoch({n: n})
    for tag in state.job.backend.tags("job"):
        state.job.backend.delete_tag("job", tag.name)
    state.job.retain(1)
    with pytest.raises(StreamingQueryException, match=r"epochs that they begin or end with are not there"):
        run()
    assert len(epochs) == 5


def test_jobs_epochs_and_files_are_tables(spark: SparkSession, tmp_path: Path, state: StateJob) -> None:
    state.epoch({1: 1})
    state.epoch({2: 2})
    none = {"operator": None, "table": None}
    jobs = read(spark, tmp_path, metadata="jobs", job=None, **none).select("job", "epoch", "status").collect()
    assert [tuple(row) for row in jobs] == [("job", 2, "complete")]
    epochs = read(spark, tmp_path, metadata="epochs", **none)
    assert [row.epoch for row in epochs.where("rows > 0").orderBy("epoch").collect()] == [1, 2]
    files = read(spark, tmp_path, metadata="files", **none)
    assert {row.table for row in files.collect()} == {"t", "names"}
    assert {row.table for row in read(spark, tmp_path, metadata="tables", **none).collect()} == {"t", "names"}
    with pytest.raises(PySparkException, match="no such metadata table"):
        read(spark, tmp_path, metadata="epoch", **none)
    with pytest.raises(PySparkException, match="did you mean columns"):
        read(spark, tmp_path, colums="k")


def test_a_stream_of_rows_is_refused(spark: SparkSession, tmp_path: Path, state: StateJob) -> None:
    ls.register(spark)
    state.epoch({1: 1})
    stream = spark.readStream.format("lakestate").options(job="job", operator="op", table="t")
    with pytest.raises((PySparkException, StreamingQueryException), match="a stream reads the changes"):
        (
            stream.load(str(tmp_path / "state"))
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "spark"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )


@pytest.mark.usefixtures("spark")
def test_the_page_on_looking_inside_prints_what_it_shows_twice(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "looking-inside.md").read_text()
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    for _ in range(2):
        names: dict[str, Any] = {}
        for code, shown in pairs:
            with redirect_stdout(StringIO()) as printed:
                exec(code.replace("/data/", f"{tmp_path}/"), names)
            assert printed.getvalue() == shown
    assert len(pairs) == 4
