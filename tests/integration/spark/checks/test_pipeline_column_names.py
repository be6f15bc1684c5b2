"""Names of columns that users give: a name is a column of the stream, and a function has parentheses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.support.spark.pipelines import read_output, read_stream, run_available, state_rows, write_input
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.spark.graph.column_names import FUNCTIONS_WITHOUT_PARENTHESES
from lakestate.spark.graph.nodes import Graph, KeyByNode, SourceNode
from lakestate.spark.graph.schemas import Schemas

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

Key = str | Callable[[], "Column"]


def keyed_by(spark: SparkSession, columns: str, *keys: Key) -> tuple[str, ...]:
    """The key columns of a stream with these columns and keys."""
    graph = Graph()
    source = graph.add(SourceNode("events", spark.createDataFrame([], columns)))
    given = tuple(key if isinstance(key, str) else key() for key in keys)
    keyed = graph.add(KeyByNode(source, given))
    return Schemas(spark, graph).key(keyed)


def test_the_names_that_spark_takes_for_functions_are_known(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    frame = spark.createDataFrame([], "n int")
    names = {function.name for function in spark.catalog.listFunctions()}
    found = []
    for name in sorted(names | set(FUNCTIONS_WITHOUT_PARENTHESES)):
        try:
            frame.select(F.expr(f"`{name}`"))
        except AnalysisException:
            continue
        found.append(name)
    assert tuple(found) == FUNCTIONS_WITHOUT_PARENTHESES


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "shown"),
        [
            ("user", "user"),
            ("`user`", "`user`"),
            ("User", "User"),
            ("concat(user, '-x') as k", "user in concat"),
            ("cast(current_date as string) as k", "current_date in cast"),
            ("xxhash64(current_timestamp) as k", "current_timestamp in xxhash64"),
            (lambda: F.col("user"), "user in Column<'user'>"),
            (lambda: F.coalesce("session_user", F.lit("x")).alias("k"), "session_user in Column"),
        ],
    )
    def test_a_name_that_no_column_has_is_refused_although_a_function_has_it(
        self, spark: SparkSession, key: Key, shown: str
    ) -> None:
        with pytest.raises(ls.InvalidInputError) as raised:
            keyed_by(spark, "users string, n int", key)
        said = str(raised.value)
        assert said.startswith(f"key_by names a column that the rows do not have: {shown}")
        assert "found users, n" in said
        assert "Spark's function is written" in said

    def test_the_nearest_columns_are_named(self, spark: SparkSession) -> None:
        with pytest.raises(ls.InvalidInputError, match=r"not have: uzer; found user, n; did you mean user\?"):
            keyed_by(spark, "user string, n int", "uzer")
        with pytest.raises(ls.InvalidInputError, match=r"did you mean user\?"):
            keyed_by(spark, "user string, n int", "USER")

    @pytest.mark.parametrize(
        ("columns", "keys", "expected"),
        [
            ("user string", ["user"], ("user",)),
            ("user string", ["`user`"], ("user",)),
            ("user string", [lambda: F.col("user")], ("user",)),
            ("user string", ["concat(user, '-x') as k"], ("k",)),
            ("n int", ["current_user() as who", "current_date() as day"], ("who", "day")),
            ("n int", [lambda: F.concat(F.lit("user"), F.col("n")).alias("k")], ("k",)),
            ("xs array<string>", ["transform(xs, user -> lower(user))[0] as k"], ("k",)),
            ("n int", ["n + 1 as m", "m"], ("m", "m")),
            ("n int", ["n + 1 as m", "m * 2 as k"], ("m", "k")),
            ("`order.id` string", ["order.id"], ("order.id",)),
            ("`order.id` string", ["`order.id`"], ("order.id",)),
            ("`order.id` string", [lambda: F.col("`order.id`")], ("order.id",)),
            ("`a``b` string", ["a`b"], ("a`b",)),
        ],
    )
    def test_columns_and_expressions_over_them_are_keys(
        self, spark: SparkSession, columns: str, keys: list[Key], expected: tuple[str, ...]
    ) -> None:
        assert keyed_by(spark, columns, *keys) == expected

    def test_a_key_that_differs_from_a_column_only_in_case_is_refused(self, spark: SparkSession) -> None:
        with pytest.raises(ls.InvalidInputError, match=r"only in case: .*found column user.*write user"):
            keyed_by(spark, "user string", lambda: F.col("User"))


@pytest.mark.parametrize("name", ["current_timestamp", "tss", "`ts`"])
def test_an_event_time_that_is_not_a_column_is_refused(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    pipeline = ls.Pipeline("job", f"file://{tmp_path}/checkpoints")
    (tmp_path / "in").mkdir()
    frame = read_stream(spark, tmp_path / "in", "user string, ts timestamp")
    pipeline.source(frame, name="events", event_time=name).sink("out", ls.ParquetSink("memory://out"))
    with pytest.raises(
        ls.InvalidInputError, match=r"event_time of source events names a column .*found user, ts"
    ):
        pipeline.start()


class OddNames(Totals):
    """Totals over columns with odd names."""

    input = "`user.name` string, amount double"
    output = "`user.name` string, `a``b` double"
    totals = ls.KeyedTable(key="`user.name` string", value="`a``b` double")

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Any:
        grouped = pa.table(batch).group_by("user.name").aggregate([("amount", "sum")])
        before = ctx.totals.get(grouped).column("a`b").fill_null(0.0)
        spend = pa.compute.add(grouped["amount_sum"], before)
        rows = pa.table({"user.name": grouped["user.name"], "a`b": spend})
        ctx.totals.put(rows)
        yield rows


def test_columns_with_dots_and_backticks_in_their_names_go_all_the_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table({"user.name": ["ann", "bob", "ann"], "amount": [1.0, 2.0, 4.0], "more.x": [1, 2, 3]})
    write_input(tmp_path / "in", 0, rows)
    write_input(tmp_path / "in", 1, rows)
    backend = ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")
    pipeline = ls.Pipeline("odd", backend, parallelism=2)
    source = pipeline.source(
        read_stream(spark, tmp_path / "in", "`user.name` string, amount double, `more.x` bigint")
    )
    changes = source.key_by("user.name").apply("totals", OddNames())
    changes.key_by("a`b").sink(
        "out",
        ls.ParquetSink(f"file://{tmp_path}/out", partition_by=["user.name"], shuffle_by_partition=True),
    )
    run_available(pipeline, drain=True)
    expected = [{"user.name": "ann", "a`b": 10.0}, {"user.name": "bob", "a`b": 4.0}]
    assert state_rows(backend, "odd", "totals", OddNames(), "totals") == expected
    assert sorted(row["a`b"] for row in read_output(tmp_path / "out")) == [2.0, 4.0, 5.0, 10.0]
