"""What the documentation shows works as it is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakestate as ls

DOCS = Path(__file__).parents[2] / "docs"


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
    code = blocks("state-tables.md", "Look inside")[0]
    code = code.replace("/data/checkpoints", str(tmp_path)).replace("duckdb.sql(", "found = duckdb.sql(")
    code = code.replace("pq.read_metadata(path).metadata", "described = pq.read_metadata(path).metadata")
    out: dict[str, Any] = {}
    exec(code, names | {"path": str(next(tmp_path.rglob("totals-*.parquet")))}, out)
    assert out["found"].fetchall() == [("ada", 1, 9.5)]
    assert out["described"][b"lakestate.table"] == b"totals"


def test_a_checkpoint_is_read_by_pyarrow_and_duckdb_alone(tmp_path: Path) -> None:
    backend = ls.ParquetBackend(f"file://{tmp_path}", cache_dir=tmp_path / "cache")
    table = ls.KeyedTable("t", key="k bigint", value="n bigint")
    tables = ls.TableManager.load(ls.TaskInfo("j", "op"), [table], backend, restore_from=None)
    tables.keyed("t").put(pa.table({"k": [1, 2, 3], "n": [10, 20, 30]}))
    tables.checkpoint(1, 1, None, False)
    file = next((tmp_path / "j").rglob("*.parquet"))
    assert sorted(pq.read_table(file, columns=["k", "n"]).column("n").to_pylist()) == [10, 20, 30]
    assert duckdb.sql(f"SELECT sum(n) FROM '{file}'").fetchall() == [(60,)]
