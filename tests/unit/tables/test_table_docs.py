"""The pages on state tables and on table types say what is there."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from tests.support.repository import ROOT

import lakestate as ls
from lakestate import tables
from lakestate.codec import tables as codec
from lakestate.tables import registry
from lakestate.tables.contract import Table, View

DOCS = ROOT / "docs"
COUNTER = ROOT / "tests" / "support" / "jobs" / "counter_table.py"


def section(page: str, heading: str) -> str:
    """The text from a heading to the next one of any level."""
    text = (DOCS / page).read_text()
    return re.split(r"^#+ ", text.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def names_in_tables(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))


def code_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("view", [ls.KeyedView, ls.TimeKeyView, ls.GlobalKeyedView])
def test_the_reference_of_a_view_names_all_that_it_can_do(view: type[View]) -> None:
    shown = names_in_tables(section("state-tables.md", f"### `{view.__name__}`"))
    assert shown == {name for name in dir(view) if not name.startswith("_")}


def test_the_page_on_table_types_names_the_whole_contract() -> None:
    shown = names_in_tables(section("table-types.md", "## What a type implements"))
    contract = {name for name in vars(Table) if not name.startswith("_")} - {"name", "can_read"}
    assert shown == contract | {name for name in vars(View) if not name.startswith("_")}


def test_the_page_on_table_types_names_all_traits() -> None:
    shown = names_in_tables(section("table-types.md", "## What a type says about itself"))
    assert shown == set(ls.TableType.__dataclass_fields__) - {"name"}


def test_the_building_blocks_are_exported() -> None:
    assert [name for name in tables.__all__ if not hasattr(tables, name)] == []


def test_the_type_on_the_page_is_the_one_that_is_tested() -> None:
    assert code_blocks("table-types.md")[0] == COUNTER.read_text()


def test_the_page_on_table_types_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    # The type of the other tests has the same name.
    others = {name: known for name, known in registry._TABLE_CLASSES.items() if name != "counter"}
    monkeypatch.setattr(registry, "_TABLE_CLASSES", others)
    monkeypatch.setattr(codec, "_REGISTERED", dict(codec._REGISTERED))
    define, use = code_blocks("table-types.md")
    expected = (DOCS / "table-types.md").read_text().split(use)[1].split("```\n")[2]
    for _ in range(2):
        names: dict[str, Any] = {"__name__": "counter_table"}
        exec(define, names)
        with redirect_stdout(StringIO()) as printed:
            exec(use, names)
        assert printed.getvalue() == expected
