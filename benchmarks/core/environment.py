"""The machine, versions, time and commit of a run; nothing that names a host or a folder."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.core.result import Environment

PACKAGES = ("lakestate", "pyspark", "pyarrow", "numpy", "pandas", "deltalake", "pyiceberg")


def current_environment() -> Environment:
    """That of this process."""
    return Environment(
        machine=_machine(),
        versions={"python": platform.python_version(), **_java(), **_packages()},
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=_commit(),
    )


def _machine() -> str:
    model = re.search(r"model name\s*:\s*(.+)", _read(Path("/proc/cpuinfo")))
    memory = re.search(r"MemTotal:\s*(\d+)", _read(Path("/proc/meminfo")))
    parts = [f"{len(os.sched_getaffinity(0))} cores", model[1].strip() if model else platform.machine()]
    if memory:
        parts.append(f"{int(memory[1]) / 2**20:.0f} GiB of memory")
    return ", ".join([*parts, f"{platform.system()} {platform.release().split('-')[0]}"])


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _java() -> dict[str, str]:
    if shutil.which("java") is None:
        return {}
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', said)
    return {"java": found[1]} if found else {}


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    root = Path(__file__).parents[2]
    git = ["git", "-C", str(root)]
    done = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return "unknown"
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"], capture_output=True, check=False)
    return done.stdout.strip() + (", with changes" if changed.returncode else "")
