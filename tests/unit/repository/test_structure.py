"""The rooms of the repository: small files, folders that say what they are for, nothing without a name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.support.repository import ROOT

LINES_MAX = 400
MODULES_MAX = 16
OUTSIDE = ["benchmarks", "repository"]
"""Folders of unit tests whose subject is not in the package."""
NAMELESS = {"common", "helpers", "misc", "util", "utils"}

PACKAGE = ROOT / "src/lakestate"
GENERATED = PACKAGE / "v1"


def modules(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*.py")) if not file.is_relative_to(GENERATED)]


def named(files: list[Path]) -> list[str]:
    return [str(file.relative_to(ROOT)) for file in files]


def everywhere() -> list[Path]:
    return [file for folder in ("src", "tests", "benchmarks", "examples") for file in modules(ROOT / folder)]


ROOMS = [file.parent for file in modules(PACKAGE) if file.name == "__init__.py"]


def names_in(tree: ast.Module) -> tuple[set[str], set[str]]:
    """What an `__init__.py` imports from the package, and what its `__all__` lists."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]
    imported = {
        alias.asname or alias.name
        for node in imports
        if (node.module or "").startswith("lakestate")
        for alias in node.names
    }
    listed: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return imported, listed


@pytest.mark.parametrize("room", named(ROOMS))
def test_a_folder_says_what_it_is_for_and_lists_what_it_exports(room: str) -> None:
    tree = ast.parse((ROOT / room / "__init__.py").read_text())
    imported, listed = names_in(tree)
    assert ast.get_docstring(tree)
    assert {name for name in imported if not name.startswith("_")} <= listed


def test_every_folder_of_the_package_is_a_room() -> None:
    assert {file.parent for file in modules(PACKAGE)} == {*ROOMS}


def test_no_folder_has_more_modules_than_can_be_seen_at_once() -> None:
    folders = {file.parent for file in [*modules(PACKAGE), *modules(ROOT / "tests")]}
    counts = {folder: len([*folder.glob("*.py")]) - (folder / "__init__.py").exists() for folder in folders}
    assert named(sorted(folder for folder, count in counts.items() if count > MODULES_MAX)) == []


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    assert named([file for file in everywhere() if len(file.read_text().splitlines()) > LINES_MAX]) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert named([file for file in everywhere() if file.stem.strip("_") in NAMELESS]) == []


def test_unit_tests_are_found_where_the_package_has_what_they_test() -> None:
    folders = {file.parent.relative_to(ROOT / "tests/unit") for file in modules(ROOT / "tests/unit")}
    assert sorted(str(folder) for folder in folders if not (PACKAGE / folder).is_dir()) == OUTSIDE


def test_no_assertion_assigns() -> None:
    """Under `python -O` it would not."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in modules(PACKAGE)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Assert) and any(isinstance(each, ast.NamedExpr) for each in ast.walk(node))
    ]
    assert found == []


def test_decisions_have_a_number_each_and_are_listed_in_order() -> None:
    folder = ROOT / "docs/decisions"
    names = sorted(file.name for file in folder.glob("[0-9]*.md"))
    numbers = [int(match[1]) for name in names if (match := re.fullmatch(r"(\d{3})-[a-z0-9-]+\.md", name))]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(names)
    listed = re.findall(r"\((\d{3}-[a-z0-9-]+\.md)\)", (folder / "README.md").read_text())
    assert listed == names
