"""The sink of the page on sinks of your own passes the suite, and the example runs again and again."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.repository import ROOT

from lakestate.sinks import Sink
from lakestate.testing.sink_contract import SinkContract

SINK, SUITE, HISTORY = re.findall(r"```python\n(.*?)```", (ROOT / "docs/sinks/own.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The module of the page, importable as it is for a user."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "sqlite_sink.py").write_text(SINK)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        names: dict[str, Any] = {}
        exec("from sqlite_sink import SqliteSink", names)
        yield names


def test_the_suite_of_the_page_is_as_it_is_here(page: dict[str, Any]) -> None:
    exec(SUITE, page)
    assert issubclass(page["TestSqliteSink"], SinkContract)


class TestSqliteSink(SinkContract):
    @pytest.fixture
    def sink(self, page: dict[str, Any], tmp_path: Path) -> Sink:
        found: Sink = page["SqliteSink"](str(tmp_path / "out.db"), "rows")
        return found

    def read(self, sink: Any) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(sink.path)) as database:
            return [{"id": row[0], "name": row[1]} for row in database.execute("SELECT id, name FROM rows")]


def test_the_history_of_the_page_leaves_each_row_once(page: dict[str, Any], tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / f"{number}.db"
        exec(HISTORY.replace("/data/out.db", str(path)), dict(page))
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("SELECT user, n FROM totals ORDER BY 1").fetchall()
        assert found == [("ada", 1), ("bob", 2), ("cy", 3)]
