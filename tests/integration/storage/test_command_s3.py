"""The `lakestate` command on an S3 server, with the options of the store in the config file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.command_line import check_golden, run_command
from tests.support.jobs.shop_job import make_clicks, make_shop
from tests.support.repository import ROOT

from lakestate.config import StoreConfig
from lakestate.storage import open_store

ABOUT_FILES = {"errors"}
"""Golden files about config files and paths, not about a store."""
GOLDEN = [
    file for file in sorted((ROOT / "tests/unit/cli/golden").glob("*.txt")) if file.stem not in ABOUT_FILES
]
LONGER = pytest.mark.full
"""Each makes its own jobs on the server."""


@pytest.fixture
def place(s3_config: StoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreConfig:
    options = ", ".join(f"{name} = {json.dumps(value)}" for name, value in s3_config.options.items())
    lines = [
        'default = "server"',
        "[places.server]",
        f'url = "{s3_config.url}"',
        f"options = {{ {options} }}",
        'pipeline = "tests.support.jobs.shop_job:memory_sinks"',
    ]
    (tmp_path / "config.toml").write_text("\n".join(lines))
    monkeypatch.setenv("LAKESTATE_CONFIG", str(tmp_path / "config.toml"))
    for name in ("LAKESTATE_AT", "LAKESTATE_OUTPUT", "LAKESTATE_PIPELINE"):
        monkeypatch.delenv(name, raising=False)
    make_shop(s3_config, "memory://shop-out")
    make_clicks(s3_config)
    return s3_config


def as_json(*arguments: str) -> Any:
    answer = run_command(*arguments, "--output", "json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_commands_that_look(place: StoreConfig) -> None:
    assert [(row["job"], row["epoch"]) for row in as_json("jobs")] == [("clicks", 2), ("shop", 4)]
    assert [row["epoch"] for row in as_json("epochs", "shop")] == [4, 3, 2, 1]
    assert as_json("show", "shop")["status"] == "complete"
    ada = as_json("state", "shop", "per_user", "totals", "--key", "ada")
    assert ada == [{"user": "ada", "n": 2, "spend": 10.0}]
    assert as_json("sql", "shop", 'SELECT count(*) AS n FROM totals JOIN "totals@1" USING (user)') == [
        {"n": 2}
    ]
    assert [row["updated"] for row in as_json("diff", "shop", "1") if row["table"] == "totals"] == [2]
    assert [row["status"] for row in as_json("history", "shop", "per_user", "totals", "cyd")] == [
        "present",
        "deleted",
    ]
    assert as_json("du", "shop")["epochs"] == 4
    assert as_json("fsck", "shop")["sound"] is True


@pytest.mark.parametrize("file", [pytest.param(file, marks=LONGER, id=file.stem) for file in GOLDEN])
def test_what_commands_print_is_the_same_as_on_local_files(
    place: StoreConfig, file: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("pipeline")]
    config.write_text("\n".join(lines))
    check_golden(file, {place.url: "file://<tmp>/state", str(tmp_path): "<tmp>"})


def test_commands_that_change_something(place: StoreConfig) -> None:
    as_json("tag", "shop", "sale", "2")
    assert [row["tag"] for row in as_json("tags", "shop")] == ["sale"]
    as_json("export", "shop", "per_user", "totals", f"{place.url}/totals.parquet", "--epoch", "sale")
    data = open_store(place).get("totals.parquet").data
    users = pq.read_table(pa.BufferReader(data))["user"].to_pylist()
    assert sorted(users) == ["ada", "bob", "cyd", "dan"]
    assert as_json("rollback", "shop", "sale")["epoch"] == 5
    assert as_json("retain", "shop", "--keep", "1", "--yes")["epochs_deleted"] == [1, 3, 4]
    assert as_json("untag", "shop", "sale")["done"] is True
    assert as_json("fsck", "shop")["restorable"] == [5]


def test_doctor_tries_every_permission_on_the_server(place: StoreConfig) -> None:
    rows = as_json("doctor", "--no-spark")
    store = {row["check"]: row["verdict"] for row in rows if row["check"].startswith("store: ")}
    assert set(store.values()) == {"ok"}, rows
    assert not [info.path for info in open_store(place).list("lakestate-doctor")]
