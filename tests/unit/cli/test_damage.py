"""A damaged job shows what can still be read, and says what cannot."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import run_command
from tests.support.jobs.shop_job import make_clicks

import lakestate as ls
from lakestate.cli.failures import ExitCode
from lakestate.repair import list_set_aside, object_versions, put_back, set_aside
from lakestate.testing.faults import Fault, FaultyStore, SimulatedCrash, faults_at


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def as_json(*arguments: str) -> tuple[int, Any]:
    answer = run_command(*arguments, "--output", "json")
    return answer.code, json.loads(answer.out)


def test_an_epoch_whose_manifest_is_damaged_is_listed_beside_the_others(state: Path) -> None:
    damage(state / "shop/checkpoints/3/manifest.pb")
    code, rows = as_json("epochs", "shop")
    assert code == ExitCode.DAMAGED
    assert [(row["epoch"], row["status"], row["rows"]) for row in rows] == [
        (4, "complete", 13),
        (3, "damaged", None),
        (2, "complete", 12),
        (1, "complete", 6),
    ]
    assert "epoch 3 cannot be read" in run_command("epochs", "shop").err


def test_a_job_whose_newest_record_is_damaged_is_listed(state: Path) -> None:
    damage(state / "shop/epochs/0000000004.json")
    code, rows = as_json("jobs")
    assert code == ExitCode.DAMAGED
    assert [(row["job"], row["status"]) for row in rows] == [("clicks", "complete"), ("shop", "damaged")]
    assert rows[1]["rows"] is None
    assert "epoch 4 of job shop cannot be read" in run_command("jobs").err


@pytest.mark.parametrize("command", [("jobs",), ("epochs", "shop")], ids=lambda command: command[0])
def test_a_damaged_tag_is_told_and_hides_no_other(state: Path, command: tuple[str, ...]) -> None:
    run_command("tag", "shop", "good", "4")
    run_command("tag", "shop", "bad", "4")
    damage(state / "shop/tags/bad.json")
    code, rows = as_json(*command)
    tags = [row["tags"] for row in rows if row.get("job", "shop") == "shop" and row["epoch"] == 4]
    assert (code, tags) == (ExitCode.DAMAGED, ["good"])
    assert "tags/bad.json" in run_command(*command).err


def test_of_an_epoch_with_damaged_metadata_the_rest_is_shown(state: Path) -> None:
    damage(state / "clicks/checkpoints/2/operator-pages-0.metadata")
    code, shown = as_json("show", "clicks")
    assert code == ExitCode.DAMAGED
    assert shown["rows"] == 14
    assert [row["table"] for row in shown["tables"]] == ["items", "rates", "seen"]
    (problem,) = shown["damage"]
    assert "checkpoints/2/operator-pages-0.metadata" in problem["problem"]


def test_of_an_epoch_without_manifest_the_record_is_shown(state: Path) -> None:
    (state / "shop/checkpoints/4/manifest.pb").unlink()
    code, shown = as_json("show", "shop", "4")
    assert code == ExitCode.DAMAGED
    assert (shown["epoch"], shown["status"], shown["generation"]) == (4, "damaged", 1)
    assert "a referenced object is missing" in shown["damage"][0]["problem"]


def test_fsck_finds_damage_and_says_where_to_roll_back_to(state: Path) -> None:
    damage(next((state / "shop/checkpoints/4/operator-per_user").glob("*.parquet")))
    code, report = as_json("fsck", "shop")
    assert code == ExitCode.FOUND
    assert report["restorable"] == [1, 2, 3]
    assert [(row["kind"], row["epochs_lost"]) for row in report["findings"]] == [("data file", [4])]
    assert "lakestate rollback shop 3" in run_command("fsck", "shop").err


def test_fsck_rebuilds_a_damaged_fence_if_asked_and_sets_the_old_one_aside(state: Path) -> None:
    fence = state / "shop/generation.json"
    damage(fence)
    before = fence.read_bytes()
    code, report = as_json("fsck", "shop", "--repair", "--dry-run")
    planned = {"object": "generation.json", "what": "rebuild", "done": False, "detail": ""}
    assert (code, report["repairs"], fence.read_bytes()) == (ExitCode.FOUND, [planned], before)
    assert "lakestate fsck shop --repair" in run_command("fsck", "shop").err
    code, report = as_json("fsck", "shop", "--repair")
    assert (code, report["sound"]) == (ExitCode.DONE, True)
    (aside,) = (state / "shop/set-aside").rglob("generation.json")
    where = str(aside.relative_to(state / "shop"))
    assert report["repairs"] == [{**planned, "done": True, "detail": where}]
    assert aside.read_bytes() == before
    assert [(row["object"], row["can_be_put_back"]) for row in report["set_aside"]] == [
        ("generation.json", False)
    ]


def test_what_is_damaged_is_moved_aside_and_back_with_its_bytes(state: Path) -> None:
    file = next((state / "shop/checkpoints/4/operator-per_user").glob("*.parquet"))
    metadata, record = (
        state / "shop/checkpoints/3/operator-per_user-0.metadata",
        state / "shop/epochs/0000000002.json",
    )
    for each in (file, metadata, record):
        damage(each)
    before = all_files(state)
    code, planned = as_json("fsck", "shop", "--repair", "--dry-run")
    assert (code, all_files(state)) == (ExitCode.FOUND, before)
    code, done = as_json("fsck", "shop", "--repair")
    assert (code, done["restorable"]) == (ExitCode.FOUND, planned["restorable"])
    moved = {row["object"]: row["detail"] for row in done["repairs"] if row["done"]}
    assert sorted(moved) == sorted(str(each.relative_to(state / "shop")) for each in (file, metadata))
    assert {name: (state / "shop" / aside).read_bytes() for name, aside in moved.items()} == {
        name: before[state / "shop" / name] for name in moved
    }
    assert not file.exists()
    assert [row["what"] for row in done["repairs"] if row["object"].startswith("epochs/")] == ["stays"]
    assert as_json("fsck", "shop", "--repair")[1]["restorable"] == done["restorable"]
    assert as_json("fsck", "shop", "--put-back")[1]["set_aside"] == []
    assert all_files(state) == before


def test_an_object_that_was_restored_meanwhile_stays(state: Path) -> None:
    file = next((state / "shop/checkpoints/4/operator-per_user").glob("*.parquet"))
    intact = file.read_bytes()
    damage(file)
    backend = ls.ParquetBackend(state, cache_bytes=0)
    seen = object_versions(backend.objects("shop"))
    file.unlink()
    file.write_bytes(intact)
    assert set_aside(backend, "shop", [str(file.relative_to(state / "shop"))], seen) == []
    assert file.read_bytes() == intact


def test_an_object_whose_place_is_taken_is_not_put_back(state: Path) -> None:
    file = next((state / "shop/checkpoints/4/operator-per_user").glob("*.parquet"))
    intact = file.read_bytes()
    damage(file)
    as_json("fsck", "shop", "--repair")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(intact)
    code, report = as_json("fsck", "shop", "--put-back")
    assert (code, report["sound"], file.read_bytes()) == (ExitCode.DONE, True, intact)
    assert [row["can_be_put_back"] for row in report["set_aside"]] == [False]


@pytest.mark.parametrize("number", range(1, 12))
def test_a_crash_while_objects_are_moved_loses_no_bytes(number: int) -> None:
    backend = ls.ParquetBackend(f"memory://aside-crash-{number}", cache_bytes=0)
    make_clicks(backend.url)
    job = backend.objects("clicks")
    paths = [path for path in object_versions(job) if path.endswith(".parquet")]
    contents = {path: job.store.get(job.store_path(path)).data for path in paths}
    seen, store = object_versions(job), job.store
    backend.__dict__["_store"] = FaultyStore(store, faults_at({number: Fault.CRASH_AFTER}))
    with suppress(SimulatedCrash):
        set_aside(backend, "clicks", paths, seen)
    backend.__dict__["_store"] = store
    set_aside(backend, "clicks", paths, seen)
    assert {each.path for each in list_set_aside(job)} == set(paths)
    put_back(backend, "clicks")
    assert {path: job.store.get(job.store_path(path)).data for path in paths} == contents


def all_files(folder: Path) -> dict[Path, bytes]:
    jobs = [path for path in folder.rglob("*") if ".lakestate" not in path.parts]
    return {path: path.read_bytes() for path in jobs if path.is_file()}


def test_a_tag_that_cannot_be_read_is_told_and_can_be_deleted(state: Path) -> None:
    run_command("tag", "shop", "good", "2")
    run_command("tag", "shop", "bad", "3")
    damage(state / "shop/tags/bad.json")
    code, rows = as_json("tags", "shop")
    assert (code, [row["tag"] for row in rows]) == (ExitCode.DAMAGED, ["good"])
    code, done = as_json("untag", "shop", "bad")
    assert (code, done) == (0, {"job": "shop", "tag": "bad", "epoch": None, "done": True})
    assert as_json("tags", "shop")[0] == 0


def test_a_job_that_has_published_nothing_is_listed_and_says_so(state: Path) -> None:
    ls.ParquetBackend(state, cache_bytes=0).claim("new")
    code, rows = as_json("jobs")
    assert (code, [(row["job"], row["status"]) for row in rows]) == (
        ExitCode.DONE,
        [("clicks", "complete"), ("new", "no epoch"), ("shop", "complete")],
    )
    assert as_json("epochs", "new") == (ExitCode.DONE, [])
    for command in ("show", "du", "retain", "compact"):
        answer = run_command(command, "new")
        assert (answer.code, answer.err.splitlines()[0][:39]) == (
            ExitCode.NOT_FOUND,
            "error: job new has no published epoch: ",
        ), command


@pytest.mark.parametrize(
    "object_name",
    ["epochs/0000000004.json", "checkpoints/4/manifest.pb", "checkpoints/4/operator-per_user-0.metadata"],
)
@pytest.mark.parametrize(
    "command",
    [
        *(
            "jobs",
            "epochs shop",
            "show shop",
            "state shop per_user totals",
            "du shop",
            "tags shop",
            "fsck shop",
        ),
        *("diff shop 1", "history shop per_user totals ada", "compact shop", "retain shop"),
        "rollback shop 3 --pipeline tests.support.jobs.shop_job:memory_sinks --dry-run",
    ],
)
def test_no_damage_is_a_traceback(state: Path, object_name: str, command: str) -> None:
    damage(state / "shop" / object_name)
    answer = run_command(*command.split())
    assert answer.code in {ExitCode.DONE, ExitCode.FOUND, ExitCode.DAMAGED}, answer.err
    assert "Traceback" not in answer.err


def test_what_can_be_compared_is_shown_beside_a_damaged_table(state: Path) -> None:
    damage(next((state / "shop/checkpoints/4/operator-per_user").glob("totals-*.parquet")))
    code, rows = as_json("diff", "shop", "3", "4")
    assert code == ExitCode.DAMAGED
    tables = [row["table"] for row in as_json("show", "shop")[1]["tables"]]
    assert [row["table"] for row in rows] == sorted(set(tables) - {"totals"})
    assert "per_user.totals cannot be compared" in run_command("diff", "shop", "3", "4").err
    assert run_command("history", "shop", "per_user", "totals", "ada").code == ExitCode.DAMAGED


def test_sql_tells_damage_as_every_command_does(state: Path) -> None:
    damage(next((state / "shop/checkpoints/4/operator-per_user").glob("totals-*.parquet")))
    answers = [
        run_command(*command)
        for command in (("sql", "shop", "SELECT sum(n) FROM totals"), ("state", "shop", "per_user", "totals"))
    ]
    assert [answer.code for answer in answers] == [ExitCode.DAMAGED] * 2
    assert answers[0].err == answers[1].err
    assert answers[0].err.splitlines()[1] == (
        "hint: restore the object, or go back to an epoch that does not need it: lakestate fsck says which"
    )


def test_a_fork_of_a_damaged_epoch_is_refused_unless_it_leaves_the_damage_out(state: Path) -> None:
    file = next((state / "shop/checkpoints/4/operator-per_user").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    answer = run_command("fork", "shop", "trial")
    assert (answer.code, answer.out) == (ExitCode.DAMAGED, "")
    assert "epoch 4 of job shop is damaged, in operator per_user" in answer.err
    assert "lakestate fsck says which are whole" in answer.err
    assert not (state / "trial").exists()
    assert run_command("fork", "shop", "trial", "--epoch", "3").code == 0
    assert run_command("fork", "shop", "other", "--drop", "per_user").code == 0
