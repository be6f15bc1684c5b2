"""Every command of the runbook runs, in the situation that its section is about."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.command_line import run_command
from tests.support.jobs.shop_job import make_shop
from tests.support.repository import ROOT
from tests.unit.cli.test_damage import damage

PAGE = (ROOT / "docs/runbook.md").read_text()
SECTIONS = {text.split("\n")[0]: text for text in PAGE.split("\n## ")[1:]} | {"first": PAGE.split("\n## ")[0]}
NEEDS_SPARK = "lakestate plan "
"""Run by tests/integration/spark/checks/test_plan_command.py."""


def commands_of(section: str) -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", SECTIONS[section], re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job whose sink has made files visible, and a module that declares the sink."""
    make_shop(tmp_path / "checkpoints", f"file://{tmp_path}/out", roll="1B")
    sink = f"ls.ParquetSink('file://{tmp_path}/out', roll=ls.Roll(bytes='1B'))"
    (tmp_path / "shop_jobs.py").write_text(f"import lakestate as ls\npipeline = {{'out': {sink}}}\n")
    (tmp_path / "config.toml").write_text(f'default = "here"\n[places]\nhere = "{tmp_path}/checkpoints"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKESTATE_CONFIG", str(tmp_path / "config.toml"))
    for name in ("LAKESTATE_AT", "LAKESTATE_OUTPUT", "LAKESTATE_PIPELINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "shop_jobs", raising=False)
    return tmp_path


def nothing(data: Path) -> None:
    """The section is about a sound job."""


def corrupt(data: Path) -> None:
    damage(next((data / "checkpoints/shop/checkpoints/4/operator-per_user").glob("*.parquet")))


def with_room_for_a_copy(data: Path) -> None:
    (data / "moved").mkdir()


SITUATIONS: dict[str, Callable[[Path], None]] = {
    "first": nothing,
    "A job is stuck": nothing,
    "A job is slow": nothing,
    "A bad deploy": nothing,
    "Try something on real state": nothing,
    "An object is corrupt": corrupt,
    "State is too large": nothing,
    "Another bucket": with_room_for_a_copy,
    "Other parallelism": nothing,
    "Another schema": nothing,
}


def test_every_section_has_a_situation() -> None:
    assert sorted(SITUATIONS) == sorted(SECTIONS)


@pytest.mark.parametrize("section", SITUATIONS)
def test_the_commands_of_a_section_run(section: str, data: Path) -> None:
    SITUATIONS[section](data)
    ran = 0
    for line in commands_of(section):
        if line.startswith(NEEDS_SPARK):
            continue
        run_line(line.replace("/data/", f"{data}/"))
        ran += 1
    assert ran


def run_line(line: str) -> None:
    text, _, comment = line.partition("  #")
    words = shlex.split(text)
    if words[:2] == ["cp", "-r"]:
        shutil.copytree(words[2], words[3])
        return
    assert words[0] == "lakestate", line
    expected = int(found[1]) if (found := re.search(r"exit code (\d+)", comment)) else 0
    answer = run_command(*words[1:])
    assert (answer.code, "Traceback" in answer.err) == (expected, False), f"{line}\n{answer.out}{answer.err}"


def test_after_going_back_the_job_is_sound_again(data: Path) -> None:
    corrupt(data)
    for line in commands_of("An object is corrupt"):
        run_line(line)
    answer = run_command("fsck", "shop", "--output", "json")
    assert '"restorable": [\n    1,\n    2,\n    3,\n    5\n  ]' in answer.out
