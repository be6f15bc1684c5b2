"""A start that fails leaves nothing behind. Spark is not needed for that: stand-ins will do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import lakestate as ls
from lakestate.spark import pipeline as pipelines


class Unreachable(ls.ParquetSink):
    """A sink whose target does not answer."""

    def claim_output(self, owner: Any, claim: Any) -> None:
        raise ls.StorageUnavailableError("the target does not answer")


def test_a_sink_that_cannot_be_claimed_leaves_no_folder_of_spark_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "check_connector",
        "check_session",
        "check_types",
        "check_speculation",
        "check_code",
        "Schemas",
    ):
        monkeypatch.setattr(pipelines, name, lambda *args: None)
    frame: Any = SimpleNamespace(isStreaming=True, sparkSession=None)
    drawn = ls.Pipeline("job", f"file://{tmp_path}/state", cache_dir=tmp_path / "cache")
    drawn.source(frame).sink("out", Unreachable(f"file://{tmp_path}/out"))
    ready = SimpleNamespace(steps={"out": 1}, schemas=None, graph=drawn._graph)
    monkeypatch.setattr(pipelines, "compile_pipeline", lambda *args: ready)
    with pytest.raises(ls.StorageUnavailableError, match="does not answer"):
        drawn.start(spark_checkpoint=tmp_path / "spark")
    assert list(tmp_path.rglob("lakestate-spark-*")) == []
