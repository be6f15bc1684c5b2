"""The programs that the pages on ready operators begin with run as they stand, as often as they are run."""

from __future__ import annotations

import re
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.support.repository import ROOT

_PROGRAM = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
PAGES = {page.name: page.read_text() for page in sorted((ROOT / "docs" / "operators").glob("*.md"))}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if _PROGRAM.search(text)])
def test_the_first_program_of_a_page_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LAKESTATE_PROGRESS", "0")
    program, shown = _PROGRAM.findall(PAGES[page].replace("/data/", f"{tmp_path}/"))[0]
    for _ in range(2):
        printed = StringIO()
        with redirect_stdout(printed):
            # Classes of a program are pickled by value, those of a module by name.
            exec(program, {"__name__": "__main__"})
        assert printed.getvalue() == shown
