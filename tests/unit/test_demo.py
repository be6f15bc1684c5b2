"""`make demo` runs to its end and shows each refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_runs_to_its_end_and_shows_every_refusal(tmp_path: Path) -> None:
    places = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        env=os.environ | places,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    codes = [code for code in ("fenced", "not_found", "corruption") if f"[{code}]" in run.stdout]
    assert codes == ["fenced", "not_found", "corruption"]
    assert (tmp_path / "lakestate-demo" / "orders-per-user" / "retention.json").exists()
