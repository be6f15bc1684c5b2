"""Nothing that must happen stands inside an `assert`: the package works under `python -O`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.repository import ROOT

LAYERS = ("protocol", "codec", "storage", "job", "tables", "coordinator", "sinks", "operators", "runtime")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_unit_tests_pass_without_assertions_in_the_package() -> None:
    """pytest rewrites the assertions of the tests themselves, so those still count."""
    folders = [folder for layer in LAYERS if (folder := ROOT / "tests/unit" / layer).is_dir()]
    command = [sys.executable, "-O", "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    quiet = ["-W", "ignore::pytest.PytestConfigWarning"]
    ran = subprocess.run(
        [*command, *quiet, *map(str, folders)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
