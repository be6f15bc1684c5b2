"""`df.writeStream.format("lakestate")` in a real Spark: read back, restarted, failing, on S3, and refused."""

from __future__ import annotations

import datetime as dt
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.support.spark.pipelines import run_available, write_input

import lakestate as ls
from lakestate.sinks import EventTime, WriterState
from lakestate.sinks.formats import registry
from lakestate.storage import open_store

pytest.importorskip("pyspark")
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from tests.support.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakestate.config import StoreConfig

pytestmark = pytest.mark.skipif(
    find_spec("pyspark.sql.datasource") is None, reason="Spark 3.5 has no data sources in Python"
)

DDL = "n bigint, country string, price decimal(10,2), tags array<string>, ts timestamp"
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("country", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
COUNTRIES = ["DE", "FR", None, "a/b"]


def some_rows(file: int, count: int = 40) -> pa.Table:
    numbers = range(file * count, file * count + count)
    return pa.Table.from_pylist(
        [
            {
                "n": n,
                "country": COUNTRIES[n % len(COUNTRIES)],
                "price": None if n % 7 == 0 else n,
                "tags": [f"tag-{n % 3}"] * (n % 4),
                "ts": START + dt.timedelta(minutes=n),
            }
            for n in numbers
        ],
        schema=SCHEMA,
    )


class Query:
    """A query over input files, one in every batch, run as often as the test wants."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        self.spark = spark
        self.folder = folder
        self.files = 0
        self.options = {
            "path": str(folder / "out"),
            "checkpointLocation": str(folder / "checkpoint"),
            "rollInterval": "none",
            **options,
        }
        (folder / "in").mkdir(exist_ok=True)
        ls.register(spark)

    def feed(self, count: int) -> None:
        for _ in range(count):
            write_input(self.folder / "in", self.files, some_rows(self.files))
            self.files += 1

    def rows(self) -> DataFrame:
        reader = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / "in"))

    def run(self, change: Callable[[DataFrame], DataFrame] = lambda rows: rows) -> None:
        """Read what is there, and stop."""
        writer = change(self.rows()).writeStream.format("lakestate").options(**self.options)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    def finish(self) -> list[str]:
        return ls.finish_files(**self.options)

    def expected(self) -> list[dict[str, Any]]:
        return [row for file in range(self.files) for row in some_rows(file).to_pylist()]


def visible(folder: Path) -> list[dict[str, Any]]:
    """Every row that a reader of the directory finds, in order."""
    partitioning = ds.partitioning(pa.schema([("country", pa.string())]), flavor="hive")
    table = ds.dataset(folder, partitioning=partitioning, ignore_prefixes=[".", "_"]).to_table()
    return sorted(table.select(SCHEMA.names).to_pylist(), key=lambda row: row["n"])


def test_partitioned_files_hold_every_row_once_for_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, partitionBy="country", compression="snappy", prefix="orders")
    query.feed(2)
    query.run()
    out = tmp_path / "out"
    assert not list(out.glob("country=*"))
    # Two batches, and one file for each country: files stayed open.
    files = query.finish()
    assert Counter(file.split("/")[0] for file in files) == Counter(
        ["country=DE", "country=FR", "country=__HIVE_DEFAULT_PARTITION__", "country=a%2Fb"]
    )
    assert all("/orders-" in file for file in files)
    assert visible(out) == query.expected()
    by_spark = sorted(row.n for row in spark.read.parquet(str(out)).where("country = 'a/b'").collect())
    assert by_spark == [row["n"] for row in query.expected() if row["country"] == "a/b"]
    found = duckdb.sql(f"select count(*), sum(n), sum(price) from '{out}/**/*.parquet'").fetchall()
    expected = query.expected()
    assert found == [
        (
            len(expected),
            sum(row["n"] for row in expected),
            sum(row["price"] for row in expected if row["price"] is not None),
        )
    ]
    assert pq.read_metadata(out / files[0]).row_group(0).column(0).compression == "SNAPPY"


def test_a_query_continues_with_its_open_files_at_another_number_of_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path)
    for partitions in (3, 1, 4, 2):
        query.feed(1)
        query.run(lambda rows, count=partitions: rows.repartition(count))
    assert list((tmp_path / "out").glob("*.parquet")) == []
    assert len(query.finish()) == 4
    assert visible(tmp_path / "out") == query.expected()


def test_a_batch_that_spark_runs_again_is_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, rollInterval="0 seconds")
    query.feed(2)
    query.run()
    # As if Spark had failed after our commit and before its own.
    commits = tmp_path / "checkpoint" / "commits"
    (commits / "1").unlink()
    (commits / ".1.crc").unlink(missing_ok=True)
    query.feed(1)
    query.run()
    assert (commits / "2").exists()
    assert visible(tmp_path / "out") == query.expected()


def test_a_checkpoint_that_is_one_batch_older_than_the_state_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, stateLocation=str(tmp_path / "state"))
    query.feed(1)
    query.run()
    older = shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    query.feed(1)
    query.run()
    shutil.rmtree(tmp_path / "checkpoint")
    older.rename(tmp_path / "checkpoint")
    # As many rows, and yet not the batch that is published: only Spark's offsets can tell.
    with pytest.raises(StreamingQueryException, match="a batch was planned a second time"):
        query.run()


def test_a_task_that_fails_after_half_of_its_rows_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 20)
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails")
            yield batch.slice(20)

    query = Query(spark, tmp_path, rollSize="1")
    query.feed(2)
    query.run(lambda rows: rows.mapInArrow(fails_at_first, DDL))
    query.finish()
    assert visible(tmp_path / "out") == query.expected()


def test_json_lines_by_hour_of_event_time(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(
        spark,
        tmp_path,
        format="json",
        compression="gzip",
        partitionBy="hour=%H",
        eventTime="ts",
        dropEventTime="true",
    )
    query.feed(2)
    query.run(lambda rows: rows.select("n", "ts"))
    query.finish()
    rows = spark.read.json(str(tmp_path / "out")).collect()
    assert sorted((row.n, row.hour) for row in rows) == [(n, n // 60) for n in range(80)]
    assert {field for row in rows for field in row.asDict()} == {"n", "hour"}


def test_a_format_of_the_users_program_is_written_by_sparks_processes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LinesWriter(ls.AppendingWriter):
        def encode_rows(self, batch: pa.RecordBatch) -> bytes:
            return "".join(f"{n}\n" for n in batch["n"].to_pylist()).encode()

    @dataclass(frozen=True)
    class Lines(ls.FileFormat):
        name = "lines"

        @property
        def extension(self) -> str:
            return "lines"

        def open_writer(self, schema: pa.Schema, state: WriterState | None) -> LinesWriter:
            return LinesWriter(schema, state)

    monkeypatch.setattr(registry, "_formats", dict(registry._formats))
    ls.register_file_format(Lines)
    query = Query(spark, tmp_path, format="lines", partitionBy="country")
    query.feed(2)
    query.run()
    query.feed(1)
    query.run()
    query.finish()
    files = (tmp_path / "out").glob("country=*/part-*.lines")
    found = sorted(int(line) for file in files for line in file.read_text().splitlines())
    assert found == [row["n"] for row in query.expected()]


def test_rows_of_one_partition_meet_in_one_file(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, partitionBy="country")
    query.feed(2)
    writer = ls.write_stream(query.rows().repartition(3), shuffle_by_partition=2, **query.options)
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert len(query.finish()) == len(COUNTRIES)
    assert visible(tmp_path / "out") == query.expected()


@pytest.mark.parametrize("by", [["country"], ["country", EventTime("month=%Y-%m")]])
def test_a_pipeline_shuffles_by_partition(spark: SparkSession, tmp_path: Path, by: list[Any]) -> None:
    query = Query(spark, tmp_path)
    query.feed(2)
    pipeline = ls.Pipeline("shuffled", f"file://{tmp_path}/state", parallelism=3)
    sink = ls.ParquetSink(f"file://{tmp_path}/out", partition_by=by, shuffle_by_partition=True)
    pipeline.source(query.rows(), event_time="ts").sink("out", sink)
    run_available(pipeline, finish_files=True)
    files = list((tmp_path / "out").rglob("country=*/**/*.parquet"))
    assert len(files) == len({file.parent for file in files}) == len(COUNTRIES)
    assert sorted(n for file in files for n in pq.ParquetFile(file).read()["n"].to_pylist()) == list(
        range(80)
    )


def test_a_bad_option_fails_the_query_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, rollInterwal="1 minute")
    query.feed(1)
    with pytest.raises(StreamingQueryException) as failed:
        query.run()
    assert "unknown option: rollinterwal" in str(failed.value)


def test_bad_options_are_found_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path)
    with pytest.raises(ls.InvalidInputError, match="unknown option"):
        ls.write_stream(query.rows(), rollInterwal="1 minute", **query.options)
    with pytest.raises(ls.InvalidInputError, match="no partitions"):
        ls.write_stream(query.rows(), shuffle_by_partition=2, **query.options)


def test_output_mode_complete_fails_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path)
    query.feed(1)
    counted = query.rows().groupBy("country").count().writeStream.format("lakestate")
    started = counted.outputMode("complete").options(**query.options).start()
    with pytest.raises(StreamingQueryException, match="output mode append"):
        started.awaitTermination(60)


def test_files_and_state_on_s3(spark: SparkSession, tmp_path: Path, s3_config: StoreConfig) -> None:
    store_options = {f"store.{name}": value for name, value in s3_config.options.items()}
    query = Query(
        spark, tmp_path, path=f"{s3_config.url}/out", stateLocation=f"{s3_config.url}/state", **store_options
    )
    query.feed(2)
    query.run()
    store = open_store(s3_config)
    assert [info.size_bytes for info in store.list("out/")] == [0], "the mark of its owner, and no file"
    assert len(query.finish()) > 0
    assert s3_numbers(store) == list(range(query.files * 40))


def test_a_pipeline_with_its_output_on_s3(
    spark: SparkSession, tmp_path: Path, s3_config: StoreConfig
) -> None:
    query = Query(spark, tmp_path)
    query.feed(2)
    sink = ls.ParquetSink(
        f"{s3_config.url}/out", options=s3_config.options, roll=ls.Roll(bytes="1KB", interval=None)
    )
    pipeline = ls.Pipeline("to-s3", f"file://{tmp_path}/state", parallelism=2)
    # A map has no hash in Spark, so these rows are dealt out in turn.
    mapped = pipeline.source(query.rows()).transform(lambda rows: rows.selectExpr("n", "map('n', n) as m"))
    mapped.sink("out", sink)
    run_available(pipeline, finish_files=True)
    store = open_store(s3_config)
    assert s3_numbers(store) == list(range(query.files * 40))
    assert list(store.uploads.list_dangling()) == []


def s3_numbers(store: Any) -> list[int]:
    files = [info.path for info in store.list("out/") if not info.path.startswith("out/_")]
    tables = [pq.read_table(pa.BufferReader(store.get(path).data), columns=["n"]) for path in files]
    return sorted(n for table in tables for n in table["n"].to_pylist())


def test_the_example_of_the_page_runs(spark: SparkSession, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sinks.md").read_text()
    section = page.split("## Directly from Spark\n")[1].split("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    rows = pa.table({"id": [1, 2, 3], "country": ["DE", "FR", "DE"], "ts": [START] * 3})
    write_input(tmp_path / "in", 0, rows)
    names: dict[str, Any] = {}
    exec(code.replace("/data/", f"{tmp_path}/"), names)
    assert sorted(tuple(row) for row in names["found"].collect()) == [("DE", 2), ("FR", 1)]
