"""Copies of state tables for other tools: Iceberg tables and Parquet files, by hand and kept fresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from tests.support.command_line import run_command
from tests.support.jobs.shop_job import (
    ORDERS,
    Totals,
    backend_of,
    make_clicks,
    make_shop,
    run_orders,
    shop_job,
)

import lakestate as ls
from lakestate.coordinator.job_driver import DriverSettings
from lakestate.errors import ConflictError, InvalidInputError, OutcomeUnknownError
from lakestate.inspection.exports import Exported, keep_fresh
from lakestate.inspection.exports.fresh import check_exports
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch
from lakestate.sinks.iceberg import replace
from lakestate.testing.chained_job import ChainedJob

TOTALS = [
    {"user": "ada", "n": 2, "spend": 10.0},
    {"user": "bob", "n": 2, "spend": 3.0},
    {"user": "dan", "n": 1, "spend": 7.25},
    {"user": "eve", "n": 1, "spend": 4.0},
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    make_shop(tmp_path / "state", f"memory://{tmp_path.name}-out")
    make_clicks(tmp_path / "state")
    return tmp_path / "state"


def totals_at(state: Path, epoch: int | str = "newest") -> ls.StateTable:
    return ls.open(state).job("shop").epoch(epoch).table("per_user", "totals")


def to_iceberg(folder: Path, **settings: Any) -> ls.Export:
    return ls.Export("per_user", "totals", "shop.totals", catalog=folder / "warehouse", **settings)


def rows_of(folder: Path, name: str = "shop.totals") -> pa.Table:
    return ls.IcebergCatalog.sqlite(folder / "warehouse").load().load_table(name).scan().to_arrow()


def test_an_iceberg_table_holds_the_rows_of_an_epoch_and_then_of_a_later_one(
    state: Path, tmp_path: Path
) -> None:
    export = to_iceberg(tmp_path)
    assert export.write(totals_at(state, 1), overwrite=False) == Exported("shop.totals", Epoch(1), 3)
    assert sorted(rows_of(tmp_path)["user"].to_pylist()) == ["ada", "bob", "cyd"]
    assert export.write(totals_at(state), overwrite=False) == Exported("shop.totals", Epoch(4), 4)
    assert rows_of(tmp_path).sort_by("user").to_pylist() == TOTALS


def test_an_earlier_epoch_does_not_replace_a_later_one(state: Path, tmp_path: Path) -> None:
    export = to_iceberg(tmp_path)
    export.write(totals_at(state), overwrite=False)
    kept = Exported("shop.totals", Epoch(4), 4, is_new=False)
    assert export.write(totals_at(state, 2), overwrite=False) == kept
    assert rows_of(tmp_path).sort_by("user").to_pylist() == TOTALS
    assert export.write(totals_at(state, 2), overwrite=True).epoch == 2


def test_a_job_that_begins_anew_replaces_what_its_deleted_state_had(state: Path, tmp_path: Path) -> None:
    to_iceberg(tmp_path).write(totals_at(state), overwrite=False)
    run_orders(shop_job(backend_of(tmp_path / "anew", "anew"), f"memory://{tmp_path.name}-anew"), ORDERS)
    assert to_iceberg(tmp_path).write(totals_at(tmp_path / "anew", 1), overwrite=False).is_new


def test_a_table_with_other_rows_is_refused(state: Path, tmp_path: Path) -> None:
    to_iceberg(tmp_path).write(totals_at(state), overwrite=False)
    items = ls.open(state).job("clicks").epoch().table("pages", "items")
    other = ls.Export("pages", "items", "shop.totals", catalog=tmp_path / "warehouse")
    with pytest.raises(ConflictError, match="something else than this export"):
        other.write(items, overwrite=False)
    assert rows_of(tmp_path).sort_by("user").to_pylist() == TOTALS


@pytest.mark.parametrize("table", ["seen", "items", "rates"])
def test_tables_of_all_types_can_be_exported(state: Path, tmp_path: Path, table: str) -> None:
    found = ls.open(state).job("clicks").epoch().table("pages", table)
    ls.Export("pages", table, f"c.{table}", catalog=tmp_path / "warehouse").write(found, overwrite=False)
    assert rows_of(tmp_path, f"c.{table}").to_pylist() == found.to_arrow().to_pylist()


def test_columns_that_are_new_are_added(tmp_path: Path, state: Path) -> None:
    export = to_iceberg(tmp_path)
    table = totals_at(state)
    export.write(table, lambda: table.reader(None, ["user"]), overwrite=True)
    export.write(table, overwrite=True)
    assert rows_of(tmp_path).sort_by("user").to_pylist() == TOTALS


def test_a_commit_that_somebody_else_won_is_tried_again_with_all_rows(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, failures = replace._commit, [CommitFailedException("changed")]

    def fail_once(table: Any, rows: Any, identity: Any) -> None:
        if failures:
            rows.reader().read_all()
            raise failures.pop()
        commit(table, rows, identity)

    monkeypatch.setattr(replace, "_commit", fail_once)
    to_iceberg(tmp_path).write(totals_at(state), overwrite=False)
    assert rows_of(tmp_path).sort_by("user").to_pylist() == TOTALS


def test_a_lost_answer_is_found_out_by_the_next_export(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = replace._commit

    def lose(table: Any, rows: Any, identity: Any) -> None:
        commit(table, rows, identity)
        raise ConnectionError("reset")

    monkeypatch.setattr(replace, "_commit", lose)
    with pytest.raises(OutcomeUnknownError):
        to_iceberg(tmp_path).write(totals_at(state), overwrite=False)
    assert not to_iceberg(tmp_path).write(totals_at(state), overwrite=False).is_new
    assert len(rows_of(tmp_path)) == 4


def run_fresh(folder: Path, exports: list[ls.Export], epochs: int = 4, **settings: Any) -> list[set[str]]:
    """Run epochs of the shop with exports. Returns what failed in each."""
    backend = backend_of(folder / "state", "shop")
    job = ChainedJob(
        Totals(),
        backend,
        key="user",
        parallelism=2,
        job_id="shop",
        operator_id="per_user",
        settings=DriverSettings(RetentionPolicy(2), ls.CompactionPolicy(**settings)),
        exporter=keep_fresh(backend, "shop", exports),
    )
    failed = []
    for number in range(epochs):
        users, amounts = zip(*ORDERS[number % 4], strict=True)
        failed.append(set(job.epoch(pa.table({"user": users, "amount": amounts})).upkeep_failures))
    return failed


def test_exports_are_kept_fresh_every_so_many_epochs(tmp_path: Path) -> None:
    file = tmp_path / "totals.parquet"
    parquet = ls.Export("per_user", "totals", str(file), every=1)
    assert run_fresh(tmp_path, [to_iceberg(tmp_path, every=2), parquet]) == [set()] * 4
    assert pq.read_table(file).sort_by("user").to_pylist() == TOTALS
    # After epochs 1 and 3.
    assert sorted(rows_of(tmp_path)["user"].to_pylist()) == ["ada", "bob", "dan"]


def test_an_export_follows_a_compaction(tmp_path: Path) -> None:
    file = tmp_path / "totals.parquet"
    run_fresh(tmp_path, [ls.Export("per_user", "totals", str(file))], files_min=2)
    table = pq.read_table(file)
    epochs = [totals_at(tmp_path / "state", epoch).to_arrow() for epoch in (3, 4)]
    assert table.sort_by("user") in [each.sort_by("user") for each in epochs]


def test_an_export_that_fails_does_not_stop_the_job_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    bad = ls.Export("per_user", "totals", str(tmp_path / "file/totals.parquet"), every=100)
    good = ls.Export("per_user", "totals", str(tmp_path / "totals.parquet"), every=1)
    failed = run_fresh(tmp_path, [bad, good])
    assert failed[1:] == [{"export"}] * 3
    assert pq.read_table(tmp_path / "totals.parquet").sort_by("user").to_pylist() == TOTALS


def test_an_export_of_an_unknown_table_is_refused_with_the_nearest_name() -> None:
    declared = {"per_user": [ls.KeyedTable("totals", key="user string", value="n bigint")]}
    with pytest.raises(InvalidInputError, match="totals"):
        check_exports([ls.Export("per_user", "total", "a.parquet")], declared)
    with pytest.raises(InvalidInputError, match="one destination"):
        check_exports([ls.Export("per_user", "totals", "a.parquet")] * 2, declared)


@pytest.mark.parametrize(
    "settings", [{"dest": "totals"}, {"dest": "totals", "catalog": "/w"}, {"dest": "a.parquet", "every": 0}]
)
def test_a_destination_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        ls.Export("per_user", "totals", **settings)


def test_the_command_exports_to_iceberg(state: Path, tmp_path: Path) -> None:
    line = ["--at", str(state), "export", "shop", "per_user", "totals", "shop.totals"]
    assert run_command(*line, "--catalog", str(tmp_path / "warehouse")).code == 0
    assert rows_of(tmp_path).sort_by("user").to_pylist() == TOTALS
