"""Every command on real checkpoints, as text, JSON and CSV, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import check_golden

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_the_command_prints(file: Path, state: Path, made_jobs: Path) -> None:
    check_golden(file, {str(state.parent): "<tmp>", str(made_jobs): "<made>"})
