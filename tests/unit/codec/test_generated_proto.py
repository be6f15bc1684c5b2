"""The checked-in Protobuf classes are what the pinned compiler makes of proto/."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from tests.support.repository import ROOT


def pinned_version(package: str) -> str:
    found = re.search(rf"^{re.escape(package)}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found is not None, f"constraints.txt does not pin {package}"
    return found[1]


def require_pinned(package: str) -> None:
    # Another compiler version writes other text for the same schema.
    try:
        installed = version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    if installed != pinned_version(package):
        pytest.skip(f"{package} {installed} is not the pinned {pinned_version(package)}")


def generated_files(source_root: Path) -> dict[str, str]:
    return {
        str(file.relative_to(source_root)): file.read_text(encoding="utf-8")
        for file in sorted((source_root / "lakestate" / "v1").glob("*_pb2.py*"))
    }


def test_regenerating_the_classes_gives_the_checked_in_files(tmp_path: Path) -> None:
    for package in ("grpcio-tools", "mypy-protobuf", "protobuf"):
        require_pinned(package)
    script = ROOT / "scripts" / "generate-proto"
    subprocess.run([sys.executable, str(script), "--out", str(tmp_path)], check=True, stdout=subprocess.PIPE)
    assert generated_files(tmp_path) == generated_files(ROOT / "src"), "run `make proto`"
