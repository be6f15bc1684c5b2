"""Checks of this machine: Python, Java, Spark and its Python workers."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from lakestate.spark.diagnosis.store_checks import Check, Verdict

JAVA_MIN = 17
PYTHON_MIN = (3, 11)
_VERSION = re.compile(r'version "([^"]+)"')


def check_python() -> Check:
    """The interpreter that runs this command."""
    verdict = Verdict.OK if sys.version_info >= PYTHON_MIN else Verdict.FAILED
    return Check("python", verdict, f"{platform.python_version()}, {sys.executable}")


def check_java() -> Check:
    """The Java that Spark would start: that of JAVA_HOME, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return Check("java", Verdict.FAILED, f"not found; Spark needs Java {JAVA_MIN} or later")
    try:
        done = subprocess.run(  # noqa: S603 - what Spark would start
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("java", Verdict.FAILED, f"{java}: {error}")
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None:
        return Check("java", Verdict.FAILED, f"{java} does not say its version")
    return _java_verdict(java, found[1])


def _java_verdict(java: str, text: str) -> Check:
    parts = text.split(".")
    number = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
    if int("".join(digit for digit in number if digit.isdecimal()) or 0) >= JAVA_MIN:
        return Check("java", Verdict.OK, f"{text}, {java}")
    return Check("java", Verdict.FAILED, f"{text}, {java}; Spark needs Java {JAVA_MIN} or later")


def check_spark() -> Check:
    """Whether Spark starts, and its Python workers have what an operator needs."""
    if find_spec("pyspark") is None:
        return Check("spark", Verdict.ABSENT, 'not installed: pip install "lakestate[spark]"')
    from lakestate.spark.worker_check import try_workers

    try:
        return Check("spark", Verdict.OK, try_workers())
    except Exception as error:  # noqa: BLE001 - whatever keeps Spark from starting is the answer
        return Check("spark", Verdict.FAILED, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}")
