"""Two jobs, made once: tests that change one copy it first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.jobs.shop_job import make_clicks, make_shop

OUT = "memory://shop-out"


@pytest.fixture(scope="session")
def made_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    # Not in the folder, whose name differs from run to run: the sink's state names it, and has its size.
    make_shop(folder / "state", OUT)
    make_clicks(folder / "state")
    return folder


@pytest.fixture
def state(made_jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the checkpoints, which commands find by themselves."""
    shutil.copytree(made_jobs / "state", tmp_path / "state")
    monkeypatch.setenv("LAKESTATE_AT", str(tmp_path / "state"))
    monkeypatch.setenv("LAKESTATE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text("")
    for name in ("LAKESTATE_OUTPUT", "LAKESTATE_PIPELINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"
