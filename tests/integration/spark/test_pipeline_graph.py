"""Graphs on local Spark: several stages, branches, inputs and sinks, late rows, and what is refused."""

from __future__ import annotations

import inspect
import json
import textwrap
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.spark.pipelines import (
    EVENTS,
    START,
    events,
    read_output,
    read_stream,
    run_available,
    spark_totals,
    state_rows,
    write_input,
)
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.sinks import EventTime
from lakestate.sinks.formats.parquet.sink import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAR_S = 1_700_000_000_000
"""Milliseconds taken for seconds: more than fifty thousand years."""


@pytest.fixture
def backend(tmp_path: Path) -> ls.ParquetBackend:
    return ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")


class Changes(ls.Operator):
    """Counts the changes of totals per bucket."""

    output = "bucket int, n bigint"
    counts = ls.KeyedTable(key="bucket int", value="n bigint")

    def process_batch(self, batch, ctx):
        grouped = pa.table(batch).group_by("bucket").aggregate([([], "count_all")])
        before = ctx.counts.get(grouped).column("n").fill_null(0)
        rows = pa.table({"bucket": grouped["bucket"], "n": pa.compute.add(grouped["count_all"], before)})
        self.counts.put(rows)
        yield rows


class CountedBuckets(Changes):
    """The same, of buckets with names."""

    output = "bucket string, n bigint"
    counts = ls.KeyedTable(key="bucket string", value="n bigint")


class Named(ls.TwoInputOperator):
    """Joins events with the last known name of their user."""

    left_input = "user string, amount double"
    output = "user string, name string, amount double"
    names = ls.KeyedTable(key="id string", value="name string")
    waiting = ls.KeyedTable(key="user string", value="amount double")

    def process_left(self, batch, ctx):
        rows = pa.table(batch)
        total = rows.group_by("user").aggregate([("amount", "sum")]).rename_columns(["user", "amount"])
        before = ctx.waiting.get(total)["amount"].fill_null(0.0)
        ctx.waiting.put(total.set_column(1, "amount", pa.compute.add(total["amount"], before)))

    def process_right(self, batch, ctx):
        ctx.names.put(batch)

    def on_close(self, ctx):
        for batch in ctx.waiting.scan():
            names = ctx.names.get(batch.select(["user"]).rename_columns(["id"]))
            yield batch.append_column("name", names["name"])


def buckets(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("cast(n % 5 as int) as bucket", "user")


def with_owner(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "struct(upper(user) AS user) AS owner")


class TestShapes:
    def test_all_rows_of_a_constant_key_are_routed_to_one_subtask(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        write_input(tmp_path / "in", 0, events(0, 30))
        pipeline = ls.Pipeline("constant", backend, parallelism=3)
        rows = pipeline.source(read_stream(spark, tmp_path / "in"))
        rows.key_by("1 AS one").aggregate("all", n=ls.count()).as_log().sink(
            "out", ParquetSink(f"file://{tmp_path}/out")
        )
        rows.transform(lambda frame: frame.selectExpr("'x' AS bucket", "7 AS n")).key_by("bucket").apply(
            "buckets", CountedBuckets()
        )
        run_available(pipeline, drain=True)
        assert read_output(tmp_path / "out") == [{"one": 1, "n": 30}]
        counts = ls.read_state(backend.url, "constant", "buckets", "counts")
        assert counts.to_pylist() == [{"bucket": "x", "n": 30}]

    def test_stages_branches_and_sinks_agree_with_spark_sql(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        for number in range(2):
            write_input(tmp_path / "in", number, events(number, 300))
        copy = tmp_path / "totals.parquet"
        export = ls.Export("totals", "totals", str(copy), every=1)
        pipeline = ls.Pipeline("shapes", backend, parallelism=3, exports=[export])
        cleaned = pipeline.source(read_stream(spark, tmp_path / "in")).transform(
            lambda frame: frame.where("amount > 0")
        )
        totals = cleaned.key_by("user").apply("totals", Totals())
        totals.sink("changes", ParquetSink(f"file://{tmp_path}/changes"))
        totals.transform(buckets).key_by("bucket").apply("buckets", Changes())
        cleaned.transform(lambda frame: frame.where("user is null")).sink(
            "nobody", ParquetSink(f"file://{tmp_path}/nobody")
        )
        query = run_available(pipeline, drain=True)
        everything = spark.read.parquet(str(tmp_path / "in"))
        assert state_rows(backend, "shapes", "totals", Totals(), "totals") == spark_totals(
            spark, tmp_path / "in"
        )
        stored = ls.read_state(backend.url, "shapes", "totals", "totals", epoch=2)
        assert pq.read_table(copy).sort_by("user") == stored.sort_by("user")
        changes = read_output(tmp_path / "changes")
        expected: dict[int, int] = {}
        for row in changes:
            expected[row["n"] % 5] = expected.get(row["n"] % 5, 0) + 1
        found = state_rows(backend, "shapes", "buckets", Changes(), "counts")
        assert {row["bucket"]: row["n"] for row in found} == expected
        assert len(read_output(tmp_path / "nobody")) == everything.where("user is null").count()
        assert query.lastProgress.epoch == 3

    def test_two_inputs_meet_by_key(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        rows = events(1, 200, users=10)
        names = pa.table({"id": [f"user-{n}" for n in range(10)], "name": [f"Name {n}" for n in range(10)]})
        write_input(tmp_path / "in", 0, rows)
        write_input(tmp_path / "names", 0, names)
        pipeline = ls.Pipeline("joined", backend, parallelism=2)
        left = pipeline.source(read_stream(spark, tmp_path / "in"), name="events")
        right = pipeline.source(
            read_stream(spark, tmp_path / "names", "id string, name string"), name="names"
        )
        joined = left.key_by("user").connect(right.key_by("id")).apply("join", Named())
        joined.sink("out", ParquetSink(f"file://{tmp_path}/out"))
        counts: list[dict[str, int]] = []

        class Count:
            def on_epoch(self, progress: ls.EpochProgress) -> None:
                counts.append({**progress.rows, **progress.late_rows})

        run_available(pipeline, drain=True, listeners=[Count()])
        assert counts == [{"events": 200, "names": 10}, {}]
        expected = rows.group_by("user").aggregate([("amount", "sum")]).to_pylist()
        found = read_output(tmp_path / "out")
        assert sorted((row["user"] or "", row["name"], row["amount"]) for row in found) == sorted(
            (row["user"] or "", row["user"] and row["user"].replace("user-", "Name "), row["amount_sum"])
            for row in expected
        )


class TestLateRows:
    def test_late_rows_are_counted_dropped_and_kept_aside(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        offsets_s = [[0, 100], [50, 89, 90, 200], [150, 300, 189]]
        for number, seconds in enumerate(offsets_s):
            rows = [{"user": "a", "amount": 1.0, "ts": START + timedelta(seconds=each)} for each in seconds]
            write_input(tmp_path / "in", number, pa.Table.from_pylist(rows, schema=EVENTS))
        pipeline = ls.Pipeline("late", backend, parallelism=2)
        source = pipeline.source(
            read_stream(spark, tmp_path / "in"), event_time="ts", delay="10 seconds", late="drop"
        )
        source.key_by("user").apply("totals", Totals())
        source.late_rows().sink("late", ParquetSink(f"file://{tmp_path}/late"))
        seen: list[Any] = []

        class Collect:
            def on_epoch(self, progress: Any) -> None:
                seen.append((progress.watermark_us, dict(progress.rows), dict(progress.late_rows)))

        run_available(pipeline, drain=True, listeners=[Collect()])
        start_us = int(START.timestamp()) * 1_000_000
        assert seen == [
            (None, {"source": 2}, {"source": 0}),
            (start_us + 90_000_000, {"source": 4}, {"source": 2}),
            (start_us + 190_000_000, {"source": 3}, {"source": 2}),
            (start_us + 290_000_000, {"source": 0}, {}),
        ]
        late = sorted(int((row["ts"] - START).total_seconds()) for row in read_output(tmp_path / "late"))
        assert late == [50, 89, 150, 189]
        assert state_rows(backend, "late", "totals", Totals(), "totals") == [
            {"user": "a", "n": 5, "spend": 5.0}
        ]

    @pytest.mark.parametrize(
        "drawn",
        [
            # Before there is a watermark no row can be late.
            pytest.param(lambda source: source.late_rows(), id="late rows alone"),
            pytest.param(lambda source: source.transform(lambda f: f.where("1 = 0")), id="none is wanted"),
            pytest.param(
                lambda source: source.transform(lambda f: f.sparkSession.createDataFrame([], f.schema)),
                id="other rows are given",
            ),
        ],
    )
    def test_rows_that_spark_has_no_need_to_read_are_counted_and_raise_the_watermark(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend, drawn: Any
    ) -> None:
        for number, second in enumerate([0, 100]):
            row = {"user": "a", "amount": 1.0, "ts": START + timedelta(seconds=second)}
            write_input(tmp_path / "in", number, pa.Table.from_pylist([row], schema=EVENTS))
        pipeline = ls.Pipeline("unread", backend, parallelism=2)
        source = pipeline.source(read_stream(spark, tmp_path / "in"), event_time="ts", delay="10 seconds")
        drawn(source).sink("out", ParquetSink(f"file://{tmp_path}/out"))
        seen: list[Any] = []

        class Collect:
            def on_epoch(self, progress: Any) -> None:
                seen.append((progress.watermark_us, dict(progress.rows), dict(progress.late_rows)))

        run_available(pipeline, listeners=[Collect()])
        before_us = int(START.timestamp()) * 1_000_000 - 10_000_000
        assert seen == [(None, {"source": 1}, {"source": 0}), (before_us, {"source": 1}, {"source": 0})]

    def test_a_time_after_the_year_9999_does_not_raise_the_watermark(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        start_us = int(START.timestamp()) * 1_000_000
        for number, seconds in enumerate([[0, 100], [50, 200, FAR_S], [-FAR_S], [150, 300]]):
            times = pa.array([start_us + each * 1_000_000 for each in seconds], pa.timestamp("us", "UTC"))
            rows = pa.table({"user": ["a"] * len(times), "amount": [1.0] * len(times), "ts": times})
            write_input(tmp_path / "in", number, rows.cast(EVENTS))
        pipeline = ls.Pipeline("far", backend, parallelism=2)
        source = pipeline.source(read_stream(spark, tmp_path / "in"), event_time="ts", delay="10 seconds")
        source.key_by("user").apply("totals", Totals())
        source.sink("out", ParquetSink(f"file://{tmp_path}/out", partition_by=[EventTime("year=%Y")]))
        seen: list[Any] = []

        class Collect:
            def on_epoch(self, progress: Any) -> None:
                seen.append((progress.watermark_us, dict(progress.late_rows)))

        run_available(pipeline, drain=True, listeners=[Collect()])
        assert seen == [
            (None, {"source": 0}),
            (start_us + 90_000_000, {"source": 1}),
            (start_us + 190_000_000, {"source": 1}),
            (start_us + 190_000_000, {"source": 1}),
            (start_us + 290_000_000, {}),
        ]
        folders = {file.parent.name for file in (tmp_path / "out").glob("year=*/*.parquet")}
        assert folders == {f"year={START.year}", "year=55896", "year=-51845"}
        assert state_rows(backend, "far", "totals", Totals(), "totals") == [
            {"user": "a", "n": 8, "spend": 8.0}
        ]


class TestExample:
    def test_the_example_of_a_pipeline_runs_as_it_is_shown(self, spark: SparkSession, tmp_path: Path) -> None:
        shown = inspect.cleandoc(ls.Pipeline.__doc__ or "").partition("\n\n    ")[2]
        code = textwrap.dedent(f"    {shown}").replace("/data/", f"{tmp_path}/")
        lines = [{"user": user, "ts": f"2026-01-01T00:00:{second:02d}Z"} for second, user in enumerate("aba")]
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "0.json").write_text("\n".join(map(json.dumps, lines)))
        names = {"ls": ls, "pa": pa, "pc": pa.compute, "spark": spark, "__name__": "example"}
        exec(code, names)
        found = {row["user"]: row["n"] for row in read_output(tmp_path / "out")}
        assert found == {"a": 2, "b": 1}


class Upgraded(Totals):
    totals = ls.KeyedTable(
        key="user string",
        value="n bigint, spend double, best double",
        version=2,
        migrations=[ls.ColumnChanges(1, add={"best": ("double", 0.0)})],
    )

    def process_batch(self, batch, ctx):
        rows = pa.table(batch).group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
        before = ctx.totals.get(rows)
        n = pa.compute.add(rows["amount_count"], before["n"].fill_null(0))
        spend = pa.compute.add(rows["amount_sum"], before["spend"].fill_null(0.0))
        best = before["best"].fill_null(1.0)
        ctx.totals.put(pa.table({"user": rows["user"], "n": n, "spend": spend, "best": best}))


class Changed(Totals):
    totals = ls.KeyedTable(key="user string", value="n bigint")


class TestChecks:
    def test_a_graph_that_cannot_work_is_refused_before_anything_is_claimed(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        (tmp_path / "in").mkdir()
        frame = read_stream(spark, tmp_path / "in")
        cases: list[tuple[Any, str]] = [
            (
                lambda s: s.key_by("nobody").apply("t", Totals()),
                "key_by names a column that the rows do not have: nobody",
            ),
            (
                lambda s: s.key_by("lower(user) AS user").apply("t", Totals()),
                "a key expression has the name of",
            ),
            # Not the column `user` beside the struct; and Spark knows columns in any case.
            (
                lambda s: s.transform(with_owner).key_by("owner.user").apply("t", Totals()),
                "a key expression has the name of",
            ),
            (
                lambda s: s.transform(with_owner).key_by("OWNER.user").apply("t", Totals()),
                "a key expression has the name of",
            ),
            (
                lambda s: s.key_by("amount").apply("t", Totals()),
                "the key of table totals differs from the key of the rows",
            ),
            (lambda s: s.apply("t", Totals()), "rows without key"),
            (lambda s: s.transform(lambda f: f.select("x")).sink("o", ANY_SINK), "a transform does not fit"),
            (
                lambda s: s.transform(lambda f: 3).sink("o", ANY_SINK),
                "a transform did not return a DataFrame",
            ),
            (lambda s: s.sink("o", DAILY_SINK), "by event time, but the stream has none"),
            (lambda s: s.key_by("user").apply("n", Named()), "takes two streams"),
            (lambda s: s.key_by("user").apply("t", Totals()).apply("n", Needs()), "needs columns"),
            (lambda s: s.key_by("user").apply("n", Silent()).sink("o", ANY_SINK), "without output"),
        ]
        for draw, message in cases:
            pipeline = ls.Pipeline("refused", backend)
            draw(pipeline.source(frame))
            with pytest.raises(ls.LakestateError, match=message):
                pipeline.start()
        timed = ls.Pipeline("refused", backend)
        timed.source(frame, event_time="user").key_by("user").apply("t", Totals())
        with pytest.raises(ls.InvalidInputError, match="is not a timestamp: user; found string"):
            timed.start()
        with pytest.raises(ls.InvalidInputError, match="unknown trigger"):
            timed.start(trigger={"continuous": "1 second"})
        with pytest.raises(ls.InvalidInputError, match="not a streaming DataFrame"):
            timed.source(spark.range(1))
        assert backend.objects("refused").read_fence() is None

    def test_stored_state_is_migrated_or_refused_before_the_first_row(
        self, spark: SparkSession, tmp_path: Path, backend: ls.ParquetBackend
    ) -> None:
        def pipeline(operator: ls.Operator, operator_id: str = "totals") -> ls.Pipeline:
            drawn = ls.Pipeline("upgrade", backend, parallelism=2)
            drawn.source(read_stream(spark, tmp_path / "in")).key_by("user").apply(operator_id, operator)
            return drawn

        write_input(tmp_path / "in", 0, events(0, 100))
        run_available(pipeline(Totals()))
        write_input(tmp_path / "in", 1, events(1, 100))
        with pytest.raises(ls.IncompatibleStateError, match="raise the state version"):
            pipeline(Changed()).start()
        with pytest.raises(ls.IncompatibleStateError, match=r"no longer in the pipeline.*found totals"):
            pipeline(Totals(), "renamed").start()
        assert backend.objects("upgrade").read_fence().record.generation == 1
        run_available(pipeline(Upgraded()))
        found = state_rows(backend, "upgrade", "totals", Upgraded(), "totals")
        assert [{key: row[key] for key in ("user", "n", "spend")} for row in found] == spark_totals(
            spark, tmp_path / "in"
        )


class Needs(ls.Operator):
    input = "missing string"

    def process_batch(self, batch, ctx):
        return None


class Silent(ls.Operator):
    def process_batch(self, batch, ctx):
        return None


ANY_SINK = ParquetSink("file:///tmp/lakestate-never-written")
DAILY_SINK = ParquetSink("file:///tmp/lakestate-never-written", partition_by=[EventTime()])
