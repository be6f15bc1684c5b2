"""Flink SQL as a contender: a process of its own, which is told what to run and answers when it is done."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from benchmarks.nexmark.events import Events

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-flink" / "bin" / "python"
JARS = Path(sys.prefix) / "jars" / "flink"
PACKAGES = ROOT / "scripts" / "flink.txt"
JOB = Path(__file__).with_name("flink_job.py")
CHECKPOINT_EVERY = "1 s"
HEAP = "-Xmx4g"
DEADLINE_S = 180

CANNOT = {
    "q6": "an OVER aggregate cannot take rows that change, so the last ten of a seller have no mean",
}
"""Why a query has no form in Flink SQL."""
UNCHECKED = {
    "q12": "Flink does not emit windows of processing time that are open when its input ends",
}
"""Why rows of a query cannot be compared with its answer."""


def flink_version() -> str:
    """The version that `scripts/flink-env` installs."""
    found = re.search(r"^apache-flink==(.+)$", PACKAGES.read_text(), re.MULTILINE)
    assert found is not None, PACKAGES
    return found[1]


def why_unavailable() -> str | None:
    """Why there is no Flink here; None if there is."""
    if not PYTHON.exists():
        return "PyFlink is not installed: run scripts/flink-env"
    if not any(JARS.glob("flink-sql-parquet-*.jar")):
        why = JARS.with_name("flink.missing")
        return (
            f"its jars cannot be had: {why.read_text().strip()}"
            if why.exists()
            else "its jars are missing: run scripts/flink-env"
        )
    return None


class Flink:
    """A process that runs queries. Its JVM starts with the first one and stays.

    One that does not answer in time is killed, and the next query starts another.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process = self._start()

    def __enter__(self) -> Flink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(wait_s=30)

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, query: str, events: Events, folder: Path, rows: Path | None = None) -> None:
        """Run a query to the end of the events. Its rows go nowhere, or their changes to a folder."""
        command = {
            "query": query,
            "events": str(events.parts),
            "state": str(folder / "state"),
            "out": str(folder / "out"),
            "interval": CHECKPOINT_EVERY,
            "rows": "" if rows is None else str(rows),
        }
        answer = self._ask(command)
        if "error" in answer:
            raise RuntimeError(f"Flink cannot run {query}: {answer['error']}")

    def _start(self) -> subprocess.Popen[str]:
        # Without kept bytecode, each Python worker would compile its packages again.
        others = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        environment = {name: value for name, value in os.environ.items() if name not in others}
        classpath = os.pathsep.join(str(jar) for jar in sorted(JARS.glob("*.jar")))
        # Not FLINK_ENV_JAVA_OPTS: that would take the place of options that Flink sets itself.
        environment |= {"HADOOP_CLASSPATH": classpath, "JAVA_TOOL_OPTIONS": HEAP}
        with self._log.open("a") as log:
            return subprocess.Popen(
                [str(PYTHON), str(JOB)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )

    def _stop(self, wait_s: float) -> None:
        started = psutil.Process(self.pid).children(recursive=True) if self._process.poll() is None else []
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            for process in started:
                with suppress(psutil.Error):
                    process.kill()
            self._process.kill()
            self._process.wait()

    def _ask(self, command: dict[str, str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        ready, _, _ = select.select([self._process.stdout], [], [], DEADLINE_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._stop(wait_s=1)
            self._process = self._start()
            return {"error": f"no answer within {DEADLINE_S} s; see {self._log.name}"}
        answer: dict[str, Any] = json.loads(line)
        return answer
