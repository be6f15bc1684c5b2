"""Every page about a ready operator: its program runs as it stands, twice in a row, with the result shown."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from tests.support.repository import ROOT

PAGES = [page for page in sorted((ROOT / "docs" / "operators").glob("*.md")) if page.stem != "README"]
_BLOCKS = re.compile(r"```python\n(.*?)```\s*(?:```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "README.md"], ids=lambda page: page.stem
)
def test_the_program_of_the_page_prints_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocks = _BLOCKS.findall(page.read_text().replace("/data/", f"{tmp_path}/data/"))
    assert any(shown for _, shown in blocks), "a page shows what its program prints"
    for _ in range(2):
        names: dict[str, object] = {"__name__": "__main__"}
        for program, shown in blocks:
            exec(program, names)
            printed = capsys.readouterr().out
            assert not shown or printed.strip() == shown.strip()
