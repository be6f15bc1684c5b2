"""A Spark standalone cluster from the pip package: a master and workers of one core, each a host.

Every worker has an address, a temporary directory and a work directory of its own, as if it were a
machine.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Self

import pyspark
from tests.support.spark.pipeline_process import DEADLINE_S, QUICK_JVM, Session

from lakestate.testing.s3_server import free_ports

HOME = Path(pyspark.__file__).parent
MASTER_HOST = "127.0.0.1"


class StandaloneCluster:
    """A context manager. Workers can be killed, and others started in their place."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._port, self._web_port = free_ports(2)
        self._count = workers
        self.workers: dict[Path, Session] = {}
        """By the folder that stands for the worker's machine, those killed included."""

    @property
    def url(self) -> str:
        return f"spark://{MASTER_HOST}:{self._port}"

    def __enter__(self) -> Self:
        ports = ["--port", str(self._port), "--webui-port", str(self._web_port)]
        self._master = self._start("master.Master", self._new_folder("master"), MASTER_HOST, ports)
        try:
            for _ in range(self._count):
                self.add_worker()
            self.await_workers(self._count)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for session in (self._master, *self.workers.values()):
            session.kill()

    def add_worker(self) -> Path:
        """Another worker on a machine of its own."""
        folder = self._new_folder(f"worker-{len(self.workers)}")
        host = f"127.0.0.{len(self.workers) + 2}"
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), "--webui-port", "0"]
        self.workers[folder] = self._start("worker.Worker", folder, host, [*options, self.url])
        return folder

    def complete(self) -> None:
        """Put new workers in the place of those that were killed."""
        for _ in range(self._count - self._alive()):
            self.add_worker()
        self.await_workers(self._count)

    def await_workers(self, count: int) -> None:
        """Wait until the master has exactly so many workers."""
        ends = time.monotonic() + DEADLINE_S
        while self._alive() != count:
            assert time.monotonic() < ends, f"no {count} workers in time:\n{self._master.said()}"
            self._master.run_on(0.05)

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{MASTER_HOST}:{self._web_port}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return -1

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        (folder / "tmp").mkdir(parents=True)
        return folder

    def _start(self, name: str, folder: Path, host: str, arguments: list[str]) -> Session:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        env = {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(folder / "tmp"),
        }
        return Session([*command, "--host", host, *arguments], folder / "log", env)
