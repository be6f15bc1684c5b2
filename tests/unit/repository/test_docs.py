"""What the documentation shows works as it is shown."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.repository import ROOT

import lakestate as ls
from lakestate.testing import OperatorHarness
from lakestate.testing.plugin import SurviveFaults

DOCS = ROOT / "docs"


def blocks(page: str, heading: str) -> list[str]:
    text = (DOCS / page).read_text()
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_page_on_state_tables_runs_from_definition_to_duckdb(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    exec(blocks("state-tables.md", "Define")[0], names)
    use = blocks("state-tables.md", "Use")[0]
    exec(use.replace("file:///data/checkpoints", f"file://{tmp_path}"), names)
    exec(blocks("state-tables.md", "Restore and rescale")[0], names)
    tables = names["tables"]
    assert isinstance(tables, ls.TableManager)
    rows = [row for batch in tables.keyed("totals").scan() for row in batch.to_pylist()]
    assert rows == [{"user": "ada", "n": 1, "spend": 9.5}]
    prefixes = dict(names)
    exec(blocks("state-tables.md", "Use")[1], prefixes)
    both: Any = prefixes["both"]
    assert both.sort_by([("__query", "ascending"), ("item", "ascending")]).to_pydict() == {
        "__query": [0, 1, 1],
        "user": ["bob", "ada", "ada"],
        "item": [1, 1, 2],
        "amount": [7, 5, 6],
    }
    exec(blocks("state-tables.md", "Look inside")[0].replace("/data/checkpoints", str(tmp_path)), names)
    top: Any = names["top"]
    assert top.fetchall() == [("ada", 9.5)]


def test_the_changes_of_a_table_on_the_page_on_state_tables(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(blocks("state-tables.md", "Define")[0], names)
    use = blocks("state-tables.md", "Use")[0]
    exec(use.replace("file:///data/checkpoints", f"file://{tmp_path}"), names)
    page = (DOCS / "state-tables.md").read_text()
    declared, coded = blocks("state-tables.md", "Change a table")[:2]
    with redirect_stdout(StringIO()) as printed:
        exec(declared, names)
    assert page.split(declared)[1].startswith(f"```\n```\n{printed.getvalue()}```")
    exec(coded, names)
    restore = blocks("state-tables.md", "Restore and rescale")[0]
    exec(restore, names)
    found = names["tables"].keyed("totals").to_pylist()
    assert found == [{"user": "ada", "orders": 1, "tier": "basic", "total": 2}]


def test_the_tags_of_the_page_on_operations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backend = ls.ParquetBackend(f"file://{tmp_path}", cache_dir=tmp_path / "cache")
    table = ls.KeyedTable("t", key="k bigint", value="n bigint")
    tables = ls.TableManager.load(ls.TaskInfo("bid-counts", "op"), [table], backend, restore_from=None)
    done = tables.checkpoint(epoch=1, min_epoch=1, watermark=None, then_stop=False)
    backend.write_checkpoint_metadata("bid-counts", 1, [done])
    exec(blocks("operations.md", "Tags")[0], {"backend": backend})
    assert "name='before-sale', epoch=Epoch(1)" in capsys.readouterr().out
    assert backend.tags("bid-counts") == ()
    for _ in range(2):
        exec(blocks("operations.md", "Forks")[0], {"backend": backend, "ls": ls})
        assert capsys.readouterr().out == "bid-counts@1 True\n"


def test_a_checkpoint_is_read_by_pyarrow_and_duckdb_alone(tmp_path: Path) -> None:
    backend = ls.ParquetBackend(f"file://{tmp_path}", cache_dir=tmp_path / "cache")
    table = ls.KeyedTable("t", key="k bigint", value="n bigint")
    tables = ls.TableManager.load(ls.TaskInfo("j", "op"), [table], backend, restore_from=None)
    tables.keyed("t").put(pa.table({"k": [1, 2, 3], "n": [10, 20, 30]}))
    tables.checkpoint(1, 1, None, False)
    file = next((tmp_path / "j").rglob("*.parquet"))
    assert sorted(pq.read_table(file, columns=["k", "n"]).column("n").to_pylist()) == [10, 20, 30]
    assert duckdb.sql(f"SELECT sum(n) FROM '{file}'").fetchall() == [(60,)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What all blocks of the page on operators define, run one after the other as in one file."""
    pytest.importorskip("pyspark")
    # Drawing a pipeline asks Spark for nothing.
    names: dict[str, Any] = {"spark": MagicMock()}
    folder = tmp_path_factory.mktemp("operators")
    printed = StringIO()
    with redirect_stdout(printed):
        for block in re.findall(r"```python\n(.*?)```", (DOCS / "operators.md").read_text(), re.DOTALL):
            exec(block.replace("file:///data", f"file://{folder}"), names)
    return names | {"printed": printed.getvalue()}


class TestOperators:
    def test_tests_that_the_page_shows_pass(self, page: dict[str, Any]) -> None:
        tests = [name for name in page if name.startswith("test_")]
        assert tests == [
            "test_an_hour_is_yielded_once_when_it_is_over",
            "test_orders_get_the_names_of_earlier_epochs",
            "test_counts_survive",
        ]
        for name in tests[:2]:
            page[name]()
        page["test_counts_survive"](SurviveFaults("test_counts_survive", seeds=3))

    def test_steps_share_a_task_as_the_page_says(self, page: dict[str, Any]) -> None:
        from lakestate.spark.graph.stages import stages_of

        stages = stages_of(page["pipeline"]._graph)
        assert [[step.step_id for step in stage.steps] for stage in stages] == [
            ["hourly", "hours-out", "per-user"],
            ["per-hour"],
            ["per-day"],
            ["named", "named-out"],
        ]

    def test_the_error_reads_as_the_page_shows_it(self, page: dict[str, Any]) -> None:
        shown = re.findall(r"```\n(process raised .*?)```", (DOCS / "operators.md").read_text(), re.DOTALL)
        assert shown == [page["printed"]]


def test_the_operator_of_the_readme_counts_and_sums() -> None:
    section = (ROOT / "README.md").read_text().split("## A pipeline\n")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[1]
    names: dict[str, Any] = {"ls": ls}
    exec(code.split("\npipeline = ")[0], names)
    harness = OperatorHarness(names["Totals"]())
    harness.epoch([{"user": "ada", "amount": 9.5}])
    assert harness.epoch([{"user": "ada", "amount": 0.5}]) == [{"user": "ada", "n": 2, "spend": 10.0}]


def test_the_page_on_looking_inside_prints_what_it_shows_twice(tmp_path: Path) -> None:
    page = (DOCS / "looking-inside.md").read_text().split("## Spark")[0]
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    for _ in range(2):
        names: dict[str, Any] = {}
        for code, shown in pairs:
            with redirect_stdout(StringIO()) as printed:
                exec(code.replace("/data/", f"{tmp_path}/"), names)
            assert printed.getvalue() == shown
    assert len(pairs) == 3
