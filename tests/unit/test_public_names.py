"""The public names: what `import lakestate` loads, what `dir` and `help` show."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from collections.abc import Sequence

import pytest

import lakestate as ls
from lakestate.public_names import MODULES

HEAVY = ("boto3", "botocore", "deltalake", "numpy", "obstore", "pandas", "pyarrow", "pyiceberg", "pyspark")


def loaded_after(code: str, modules: Sequence[str]) -> list[str]:
    """Which of these modules a fresh interpreter has loaded after running some code."""
    script = f"{code}\nimport sys\nprint(*(name for name in {tuple(modules)!r} if name in sys.modules))"
    return _output_of(script).split()


def _output_of(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout


def test_importing_lakestate_loads_no_library() -> None:
    assert loaded_after("import lakestate", HEAVY) == []


def test_importing_lakestate_loads_nothing_else_of_it() -> None:
    script = "import lakestate, sys; print(*(name for name in sys.modules if name.startswith('lakestate.')))"
    assert _output_of(script).split() == []


def test_declaring_operators_tables_and_sinks_loads_no_optional_library() -> None:
    code = "import lakestate as ls\nls.Operator, ls.KeyedTable, ls.TimeKeyTable, ls.GlobalKeyedTable"
    code += "\nls.ParquetSink, ls.IcebergSink, ls.DeltaSink"
    code += "\nls.ParquetBackend, ls.TableManager, ls.verify, ls.dry_run"
    optional = [name for name in HEAVY if name not in ("numpy", "pyarrow", "obstore")]
    assert loaded_after(code, optional) == []


def test_dir_shows_every_public_name_and_nothing_else() -> None:
    shown = [name for name in dir(ls) if not name.startswith("__")]
    assert shown == sorted(ls.__all__) == sorted(MODULES)


@pytest.mark.parametrize("name", sorted(ls.__all__))
def test_every_public_name_is_what_it_is_called_and_has_a_docstring(name: str) -> None:
    if MODULES[name].startswith("lakestate.spark"):
        pytest.importorskip("pyspark")
    found = getattr(ls, name)
    assert getattr(found, "__name__", name) == name
    assert found.__doc__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lakestate' has no attribute 'KeyedTabel'"):
        _ = ls.KeyedTabel  # type: ignore[attr-defined]


LIFECYCLE = ("open_view", "compact_data", "from_config", "merge_checkpoint_metadata", "layout", "codec")


@pytest.mark.parametrize("table", [ls.KeyedTable, ls.TimeKeyTable, ls.GlobalKeyedTable])
def test_help_on_a_table_shows_what_a_user_can_call(table: type[ls.Table]) -> None:
    shown = pydoc.plain(pydoc.render_doc(table))
    assert [name for name in LIFECYCLE if f" {name}(" in shown or f" |  {name}" in shown] == []
    assert [name for name in dir(table) if not name.startswith("_")] == ["config", "name"]
    assert " |  name" in shown
    assert " |  __init__(self, name" in shown


@pytest.mark.parametrize("view", [ls.KeyedView, ls.TimeKeyView, ls.GlobalKeyedView])
def test_help_on_a_view_shows_what_a_user_can_call(view: type) -> None:
    assert {"checkpoint_into", "begin_next_epoch", "forget_before"}.isdisjoint(dir(view))
    assert "to_pylist" in dir(view)


def test_help_on_the_contract_shows_all_of_it() -> None:
    assert {"open_view", "compact_data", "from_config", "files_to_keep"} <= set(dir(ls.Table))


def test_tables_and_their_views_complete_like_their_classes() -> None:
    table = ls.KeyedTable("t", key="k bigint", value="n bigint")
    assert [name for name in dir(table) if not name.startswith("_")] == ["config", "name"]
