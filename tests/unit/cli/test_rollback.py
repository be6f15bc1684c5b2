"""`rollback` and `retain`, followed by a running job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import run_command
from tests.support.jobs.shop_job import ORDERS, make_shop, run_orders, shop_job
from tests.unit.cli.test_rows import TOTALS

import lakestate as ls
from lakestate.cli.failures import ExitCode
from lakestate.errors import FencedError


@pytest.fixture
def rolling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shop whose sink finishes its files in every epoch, and a module that declares the sink."""
    make_shop(tmp_path / "state", f"file://{tmp_path}/out", roll="1B")
    sink = f"ls.ParquetSink('file://{tmp_path}/out', roll=ls.Roll(bytes='1B'))"
    (tmp_path / "shop_outputs.py").write_text(f"import lakestate as ls\nsinks = {{'out': {sink}}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKESTATE_AT", str(tmp_path / "state"))
    monkeypatch.setenv("LAKESTATE_PIPELINE", "shop_outputs:sinks")
    monkeypatch.delitem(sys.modules, "shop_outputs", raising=False)
    return tmp_path


def as_json(*arguments: str) -> tuple[int, Any]:
    answer = run_command(*arguments, "--output", "json")
    return answer.code, json.loads(answer.out)


def totals(folder: Path) -> list[dict[str, object]]:
    return ls.read_state(folder / "state", "shop", "per_user", "totals").sort_by("user").to_pylist()


def test_output_that_is_visible_is_listed_and_must_be_accepted(rolling: Path) -> None:
    code, shown = as_json("rollback", "shop", "3")
    assert code == ExitCode.REFUSED
    assert (shown["done"], [row["epoch"] for row in shown["visible_files"]]) == (False, [4])
    (file,) = shown["visible_files"]
    assert (rolling / "out" / file["file"]).stat().st_size == file["size_bytes"]
    assert ls.open(rolling / "state").job("shop").epoch().epoch == 4
    code, shown = as_json("rollback", "shop", "3", "--accept-visible-output")
    assert (code, shown["done"], shown["epoch"]) == (0, True, 5)


def test_output_of_epochs_that_are_gone_may_be_visible(state: Path) -> None:
    run_command("tag", "clicks", "first", "1")
    (state / "clicks/checkpoints/2/manifest.pb").unlink()
    answer = run_command("rollback", "clicks", "first")
    assert answer.code == ExitCode.REFUSED
    assert "output of epochs after 1 may be visible" in answer.err
    answer = run_command("rollback", "clicks", "first", "--dry-run")
    assert (answer.code, answer.err) == (0, "this is refused without --accept-visible-output\n")


def test_a_job_that_was_rolled_back_continues_with_exact_results(rolling: Path) -> None:
    assert as_json("rollback", "shop", "2", "--accept-visible-output")[0] == 0
    # Its time is that of the clock from here on.
    backend = ls.ParquetBackend(rolling / "state", cache_bytes=0)
    job = shop_job(backend, f"file://{rolling}/out", roll="1B")
    run_orders(job, ORDERS[2:])
    assert totals(rolling) == TOTALS
    assert run_command("fsck", "shop").code == 0


def test_a_dry_run_of_rollback_fences_nobody(rolling: Path) -> None:
    job = shop_job(rolling / "state", f"file://{rolling}/out", roll="1B")
    assert as_json("rollback", "shop", "2", "--dry-run")[0] == 0
    run_orders(job, [[("eve", 1.0)]])
    assert as_json("rollback", "shop", "2", "--accept-visible-output")[0] == 0
    with pytest.raises(FencedError):
        run_orders(job, [[("eve", 1.0)]])


def test_a_plan_of_retention_fences_nobody_and_deletes_nothing(rolling: Path) -> None:
    job = shop_job(rolling / "state", f"file://{rolling}/out", roll="1B")
    code, shown = as_json("retain", "shop", "--keep", "1")
    assert (code, shown["done"], shown["epochs_deleted"]) == (0, False, [1, 2, 3])
    run_orders(job, [[("eve", 1.0)]])
    assert [row["epoch"] for row in as_json("epochs", "shop")[1]] == [5, 4, 3, 2, 1]


def test_retention_deletes_what_its_plan_says_and_the_job_continues(rolling: Path) -> None:
    planned = as_json("retain", "shop", "--keep", "1")[1]
    done = as_json("retain", "shop", "--keep", "1", "--yes")[1]
    assert done["deleted"] == planned["would_delete"]
    assert [row["epoch"] for row in as_json("epochs", "shop")[1]] == [4]
    run_orders(shop_job(rolling / "state", f"file://{rolling}/out", roll="1B"), [[("fay", 1.0)]])
    assert totals(rolling) == [*TOTALS, {"user": "fay", "n": 1, "spend": 1.0}]


def test_retention_is_refused_while_something_that_must_stay_cannot_be_read(rolling: Path) -> None:
    (rolling / "state/shop/checkpoints/4/manifest.pb").unlink()
    code, shown = as_json("retain", "shop", "--keep", "1", "--yes")
    assert (code, shown["done"]) == (ExitCode.DAMAGED, False)
    assert [row["object"].rsplit("shop/")[-1] for row in shown["refused"]] == ["checkpoints/4/manifest.pb"]
    assert [row["epoch"] for row in as_json("epochs", "shop")[1]] == [4, 3, 2, 1]
