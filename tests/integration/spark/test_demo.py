"""`make demo`, with fewer rows: killed in the middle, restarted, and exact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.repository import ROOT


# Two drivers one after the other take several times as long on a machine that is busy otherwise.
@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_demo_is_killed_continues_and_is_exact(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py"), "--events", "16000", "--events-per-batch", "4000"],
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert (run.returncode, run.stderr) == (0, "")
    said = [line.split(", ")[-1] for line in run.stdout.splitlines() if "equal:" in line]
    assert said == ["equal: yes", "equal: yes"]
    assert "by generation 2 " in run.stdout
    shown = [line.split("checkpoints ")[1] for line in run.stdout.splitlines() if "$ lakestate --at" in line]
    assert [command.split()[0] for command in shown] == ["jobs", "epochs", "sql", "profile"]
