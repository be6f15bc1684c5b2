"""Promises of the repository itself: two commands, pinned packages, nothing of anybody's machine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.support.repository import ROOT

PINNED = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+")

# What must not be in any file: each would tie the repository to one machine, or leak something.
UNWANTED = {
    "a package registry": re.compile(r"(?:https?|file)://[^\s\"'<>)]+/simple\b"),
    "a machine path": re.compile(r"(?<![\w.\-})$])/(?:root|work|home/\w+|Users/\w+)/\w"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an AWS access key": re.compile(r"\bA(?:KIA|SIA)(?!IOSFODNN7EXAMPLE)[A-Z0-9]{16}\b"),
}


def text_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in sorted(set(listing.stdout.split("\0"))) if name]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()[:8192]]


def canonical(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def constraint_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def declared_requirements() -> set[str]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    lists = [
        declared["build-system"]["requires"],
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *declared["dependency-groups"].values(),
    ]
    return {canonical(requirement) for each in lists for requirement in each} - {"lakestate"}


@pytest.mark.parametrize("command", ["demo", "test"])
def test_the_readme_names_the_two_commands_and_the_makefile_has_them(command: str) -> None:
    assert f"make {command}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{command}: setup ##" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    assert [line for line in constraint_lines() if not PINNED.fullmatch(line)] == []


def test_every_declared_requirement_is_pinned() -> None:
    assert declared_requirements() - {canonical(line) for line in constraint_lines()} == set()


@pytest.mark.parametrize("what", UNWANTED)
def test_no_file_contains(what: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in text_files()
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if UNWANTED[what].search(line)
    ]
    assert found == [], f"{what} in a file"
