"""Spark's Python daemon has imported what a subtask needs, so that a forked worker imports nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.repository import ROOT

SUBTASK = """
import sys
from importlib import import_module

from lakestate.spark.python_daemon import IMPORTED

for name in IMPORTED:
    import_module(name)
before = set(sys.modules)

import pyarrow as pa

import lakestate as ls
from lakestate.coordinator.epoch_planner import EpochPlanner
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Generation
from lakestate.runtime.sink_step import SinkStep
from lakestate.runtime.steps import ChainLink, OperatorStep
from lakestate.runtime.subtask import StagePlan, SubtaskRun

class Copy(ls.Operator):
    output = "k bigint"
    keyed = ls.KeyedTable(key="k bigint", value="n bigint")
    timed = ls.TimeKeyTable(key="k bigint", value="ts timestamp", time="ts")
    shared = ls.GlobalKeyedTable(key=int, value=int)

    def process_batch(self, batch, ctx):
        self.keyed.put(pa.table({"k": batch["k"], "n": batch["k"]}))
        self.shared.insert(1, 2)
        yield batch

folder = sys.argv[1]
rows = pa.record_batch({"k": [1, 2, 3]})
links = (
    ChainLink(OperatorStep("copy", Copy())),
    ChainLink(SinkStep("out", ls.ParquetSink(f"file://{folder}/out"), rows.schema, None), 0),
)
backend = ls.ParquetBackend(f"file://{folder}/state", cache_dir=f"{folder}/cache")
plan = EpochPlanner("job", RetentionPolicy(), ()).plan(None, Generation(1), 1000, state_id="f00d")
subtask = SubtaskRun(StagePlan("stage", 1, links), 0, plan, backend)
assert list(subtask.run([("", rows)])) == []
assert len(subtask.report.checkpoints) == 2
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.slow
def test_a_subtask_with_state_and_a_sink_imports_nothing_more(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SUBTASK, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    # The planner runs on the driver; pyarrow compares versions when it first meets pandas.
    allowed = {"lakestate.coordinator.epoch_planner", "pyarrow.vendored.version"}
    assert set(run.stdout.split()) - allowed == set()
