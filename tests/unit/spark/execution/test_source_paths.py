"""The paths that file sources read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakestate.errors import CorruptionError
from lakestate.spark.execution import source_paths

PLAN = "".join(
    f"== {stage} ==\nStreamingRelation FileSource[/data/in], [user#1]\n"
    for stage in ("Parsed Logical Plan", "Analyzed Logical Plan", "Optimized Logical Plan")
)


def test_spark_is_asked_once_about_a_path_that_its_plan_names_in_every_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def qualify(session: Any, folder: str) -> str:
        asked.append(folder)
        return f"file:{folder}"

    monkeypatch.setattr(source_paths, "explain_plan", lambda frame: PLAN)
    monkeypatch.setattr(source_paths, "_qualify", qualify)
    source: Any = SimpleNamespace(frame=SimpleNamespace(sparkSession=None), file_paths=())
    paths = source_paths.SourcePaths([source])
    paths.check("sources/0/1", "file:///data/in/a.parquet")
    with pytest.raises(CorruptionError):
        paths.check("sources/0/1", "file:///data/other/a.parquet")
    assert asked == ["/data/in"]
