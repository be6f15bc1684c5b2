"""The overview names files that exist, and every folder of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.repository import ROOT

PACKAGE = ROOT / "src" / "lakestate"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
CODE = re.compile(r"`([\w/.]+)`")


def files_of_line(line: str) -> list[Path]:
    """The files that a line names. A bare `x.py` is in the folder of the path before it."""
    files: list[Path] = []
    folder = PACKAGE
    for name in CODE.findall(line):
        if not name.endswith(".py"):
            continue
        path = PACKAGE / name if "/" in name or not files else folder / name
        folder = path.parent
        files.append(path)
    return files


NAMED = sorted({file for line in PAGE.splitlines() for file in files_of_line(line)})


@pytest.mark.parametrize("file", NAMED, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_that_the_overview_names_exists(file: Path) -> None:
    assert file.is_file()


def test_the_walk_from_source_to_sink_names_a_file_at_each_step() -> None:
    steps = [line for line in PAGE.splitlines() if re.match(r"\| \d+\. ", line)]
    assert len(steps) == 19
    assert [line for line in steps if not files_of_line(line)] == []


def test_the_overview_lists_every_folder_of_the_package() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    listed = set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))
    assert listed == folders
