"""The example of the storage and protocol layers runs to its end and shows each refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.repository import ROOT


@pytest.mark.slow
def test_the_example_runs_to_its_end_and_shows_every_refusal(tmp_path: Path) -> None:
    places = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "storage_and_protocol.py")],
        env=os.environ | places,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    codes = [code for code in ("fenced", "not_found", "corruption") if f"[{code}]" in run.stdout]
    assert codes == ["fenced", "not_found", "corruption"]
    job = tmp_path / "lakestate-storage-and-protocol" / "orders-per-user"
    assert (job / "retention.json").exists()
