"""Nothing that must happen stands inside an `assert`: the package works under `python -O`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.repository import ROOT

UNIT = ROOT / "tests/unit"
LAYERS = [
    folder
    for folder in sorted(UNIT.iterdir())
    if folder.is_dir() and folder.name not in ("repository", "__pycache__")
]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_unit_tests_pass_without_assertions_in_the_package() -> None:
    """pytest rewrites the assertions of tests, and of what they share, so those still count.

    What repeats the same code over many seeds is left out: it shows nothing more here.
    """
    command = [sys.executable, "-O", "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    command += ["-k", "not oracle and not growth and not crashes and not changes"]
    quiet = ["-W", "ignore::pytest.PytestConfigWarning"]
    ran = subprocess.run(
        [*command, *quiet, *map(str, LAYERS)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
