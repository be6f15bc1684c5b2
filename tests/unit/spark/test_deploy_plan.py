"""`ls.plan` and `ls.doctor`: the answers of the commands as values that notebooks show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.jobs.shop_job import Totals, make_shop

import lakestate as ls
from lakestate.errors import IncompatibleStateError
from lakestate.protocol.values import Epoch
from lakestate.tables.contract import Table


@dataclass
class Shop:
    """A pipeline of the shop, without Spark."""

    backend: ls.ParquetBackend
    problems: tuple[ls.LakestateError, ...] = ()
    job_id: str = "shop"

    def declared_tables(self) -> Mapping[str, Sequence[Table]]:
        return {"per_user": [Totals.totals], "new": [ls.KeyedTable("t", key="k int", value="v int")]}

    def dry_run(self, *, drop: Collection[str] = (), reopen: bool = False) -> ls.PipelineDryRun:
        return ls.PipelineDryRun(self.job_id, Epoch(4), self.problems)


def test_a_plan_says_what_becomes_of_each_table_and_shows_it(tmp_path: Path) -> None:
    make_shop(tmp_path, f"memory://{tmp_path.name}")
    plan = ls.plan(Shop(ls.ParquetBackend(tmp_path, cache_bytes=0)), drop=["out"])
    found = [(each.operator, each.table, str(each.outcome)) for each in plan.tables]
    assert found[:2] == [("per_user", "totals", "unchanged"), ("new", "t", "new")]
    assert {outcome for _, _, outcome in found[2:]} == {"dropped"}
    assert (plan.can_start, plan.epoch) == (True, 4)
    assert str(plan).startswith("job shop continues after epoch 4:\noperator")
    assert "<td>unchanged</td>" in plan._repr_html_()


def test_a_plan_with_problems_cannot_start_and_escapes_them(tmp_path: Path) -> None:
    make_shop(tmp_path, f"memory://{tmp_path.name}")
    problem = IncompatibleStateError("no <way>")
    plan = ls.plan(Shop(ls.ParquetBackend(tmp_path, cache_bytes=0), (problem,)))
    assert not plan.can_start
    assert "no &lt;way&gt;" in plan._repr_html_()


def test_a_diagnosis_shows_itself(tmp_path: Path) -> None:
    found = ls.doctor(tmp_path, spark=False, dry_run=True)
    assert [check.name for check in found if check.name.startswith("store")] == ["store: list"]
    assert "<th>verdict</th>" in found._repr_html_()
    assert found.is_healthy == all(str(check.verdict) != "failed" for check in found)
