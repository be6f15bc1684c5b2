"""`doctor`: what a machine and a store allow, tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import run_command

from lakestate.ambient import SystemAmbient
from lakestate.cli.failures import ExitCode
from lakestate.spark.diagnosis.machine import check_java
from lakestate.spark.diagnosis.store_checks import Check, Verdict, check_store
from lakestate.storage import open_store
from lakestate.storage.store import Created
from lakestate.testing import Fault, FaultyStore

CHECKS = [
    *("list", "create", "read", "create if absent", "compare and swap", "copy", "multipart upload"),
    *("list after write", "clock", "delete"),
]


def files_below(folder: Path) -> list[Path]:
    """All objects; the locks of a local store are not objects."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".lakestate" not in path.parts)


def test_every_permission_is_tried_and_nothing_is_left(state: Path) -> None:
    before = files_below(state)
    answer = run_command("doctor", "--no-spark", "--output", "json")
    rows = json.loads(answer.out)
    assert answer.code == ExitCode.DONE, rows
    store = [row for row in rows if row["check"].startswith("store: ")]
    assert [(row["check"], row["verdict"]) for row in store] == [(f"store: {name}", "ok") for name in CHECKS]
    assert files_below(state) == before


def test_a_dry_run_only_lists_the_store(state: Path) -> None:
    rows = json.loads(run_command("doctor", "--no-spark", "--dry-run", "--output", "json").out)
    assert [row["check"] for row in rows if row["check"].startswith("store")] == ["store: list"]


class CreatesTwice:
    """A store that takes no notice of what exists."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, path: str, data: bytes) -> Created:
        return Created(self._store.put(path, data).version)


def test_a_store_that_creates_an_object_twice_fails() -> None:
    store: Any = CreatesTwice(open_store("memory://doctor-twice"))
    failed = [check for check in check_store(store, SystemAmbient()) if check.verdict is Verdict.FAILED]
    assert failed == [
        Check(
            "store: create if absent",
            Verdict.FAILED,
            "an object was created twice: two drivers could publish",
        )
    ]


class AnotherClock(SystemAmbient):
    """A clock that is five minutes ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 300_000


def test_a_clock_that_is_wrong_is_told() -> None:
    checks = {each.name: each for each in check_store(open_store("memory://doctor-clock"), AnotherClock())}
    assert checks["store: clock"].verdict is Verdict.FAILED
    assert checks["store: clock"].detail.startswith("the store's clock differs by ")


def test_a_failed_check_is_an_exit_code(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(state / "no-java"))
    answer = run_command("doctor", "--no-spark", "--no-store")
    assert answer.code == ExitCode.FOUND
    assert "no-java/bin/java" in answer.out


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("21.0.1", Verdict.OK), ("11.0.2", Verdict.FAILED), ("1.8.0_392", Verdict.FAILED)],
)
def test_java_must_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, verdict: Verdict
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java().verdict is verdict


def test_a_store_that_does_not_answer_fails_each_check() -> None:
    store = FaultyStore(open_store("memory://doctor-faulty"), lambda *call: Fault.UNAVAILABLE)
    assert {check.verdict for check in check_store(store, SystemAmbient())} == {Verdict.FAILED}
