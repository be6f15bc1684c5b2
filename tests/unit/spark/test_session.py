"""Sessions that a pipeline is not started on. What is asked of a session is little, so a stand-in will do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakestate.errors import InvalidInputError
from lakestate.spark.session import check_session, check_speculation


def session(**settings: str) -> Any:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return SimpleNamespace(conf=SimpleNamespace(get=named.get), version="4.3.0")


def pipeline(*exports: tuple[str, ...]) -> Any:
    """Stages with so many exported steps."""
    stages = [
        SimpleNamespace(stage=SimpleNamespace(name=f"stage-{number}"), exports=steps)
        for number, steps in enumerate(exports)
    ]
    return SimpleNamespace(stages=stages)


ONE_STAGE = pipeline(())
TWO_STAGES = pipeline(("totals",), ())


def test_speculation_is_refused_where_rows_go_from_stage_to_stage() -> None:
    with pytest.raises(InvalidInputError, match=r"output of stage stage-0; found spark.speculation=true"):
        check_speculation(session(spark_speculation="true"), TWO_STAGES)


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({"spark_speculation": "true"}, ONE_STAGE),
        ({"spark_speculation": "false"}, TWO_STAGES),
        ({}, TWO_STAGES),
    ],
    ids=["one stage", "switched off", "not set"],
)
def test_all_else_may_run(settings: dict[str, str], stages: Any) -> None:
    check_speculation(session(**settings), stages)


def test_a_session_of_spark_connect_is_refused_with_what_to_do() -> None:
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InvalidInputError, match=r"not run on Spark Connect.*builder\.master"):
        check_session(connected)
    check_session(session())
