"""Initial state on Spark: filled once, whatever happens at the first start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.pipelines import events, read_stream, run_available, write_input
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.errors import InvalidInputError, NotFoundError


def build(spark: Any, folder: Path, initial: Any, parallelism: int = 2) -> ls.Pipeline:
    pipeline = ls.Pipeline("job", folder / "checkpoints", parallelism=parallelism, cache_dir=folder / "cache")
    source = pipeline.source(read_stream(spark, folder / "in"), event_time="ts")
    source.key_by("user").apply("totals", Totals(), initial=initial)
    return pipeline


def stored(folder: Path) -> list[dict[str, Any]]:
    rows = ls.read_state(folder / "checkpoints", "job", "totals", "totals").to_pylist()
    return sorted(rows, key=str)


def test_tables_are_filled_before_the_first_row_and_only_once(spark: Any, tmp_path: Path) -> None:
    rows = [("user-1", 7, 1.5), ("unseen", 3, 2.0), (None, 1, 0.25)]
    initial = {"totals": spark.createDataFrame(rows, "user string, n int, spend double")}
    write_input(tmp_path / "in", 0, events(0, 100))
    run_available(build(spark, tmp_path, initial))
    expected = {user: (n, spend) for user, n, spend in rows}
    for row in events(0, 100).to_pylist():
        n, spend = expected.get(row["user"], (0, 0.0))
        expected[row["user"]] = (n + 1, spend + row["amount"])
    first = stored(tmp_path)
    assert first == sorted(
        ({"user": user, "n": n, "spend": spend} for user, (n, spend) in expected.items()), key=str
    )
    query = run_available(build(spark, tmp_path, initial, parallelism=3))
    assert stored(tmp_path) == first
    assert query.lastProgress is None or query.lastProgress.rows_total == 0


def test_a_start_that_failed_after_filling_does_not_fill_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakestate.spark.query import PipelineQuery

    initial = {"totals": spark.createDataFrame([("ann", 1, 1.0)], "user string, n bigint, spend double")}
    write_input(tmp_path / "in", 0, events(0, 10))
    with monkeypatch.context() as patched:
        patched.setattr(PipelineQuery, "_launch", lambda self: (_ for _ in ()).throw(OSError("no launch")))
        with pytest.raises(OSError, match="no launch"):
            build(spark, tmp_path, initial).start()
    other = {"totals": spark.createDataFrame([("bob", 9, 9.0)], "user string, n bigint, spend double")}
    run_available(build(spark, tmp_path, other))
    users = {row["user"] for row in stored(tmp_path)}
    assert "ann" in users
    assert "bob" not in users
    assert sum(row["n"] for row in stored(tmp_path)) == 11


def test_initial_state_that_does_not_fit_is_refused_when_the_pipeline_is_built(
    spark: Any, tmp_path: Path
) -> None:
    write_input(tmp_path / "in", 0, events(0, 1))
    frame = spark.createDataFrame([("ann", 1)], "user string, n bigint")
    with pytest.raises(InvalidInputError, match=r"do not fit its table.*select spend double"):
        build(spark, tmp_path, {"totals": frame})
    with pytest.raises(NotFoundError, match="has no such table: total; found totals; did you mean totals"):
        build(spark, tmp_path, {"total": frame})
    with pytest.raises(InvalidInputError, match="initial state is not a batch DataFrame"):
        build(spark, tmp_path, {"totals": read_stream(spark, tmp_path / "in")})
