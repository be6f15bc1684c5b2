"""A pipeline in a separate process that a test starts, pauses and kills.

Run as a module it is the driver: input files → running totals per user → Parquet, all below one folder.
It starts Spark and waits to be told to go, so that the next driver can warm up while one still lives. It
then runs until it is killed; or it reads what is there, closes its files and ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from tests.support.repository import ROOT

DEADLINE_S = 120
POLL_S = 0.005
JOB = "totals"
WAREHOUSE = "warehouse"
RUN, FINISH = "run", "finish"
PYTHON_DAEMON = "lakestate.spark.python_daemon"
TEST_PYTHON_DAEMON = "tests.support.spark.python_daemon"
TEST_RUN = "LAKESTATE_TEST_RUN"
"""The variable that says which process started Spark."""
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The second compiler of the JVM pays off after minutes; these processes live for seconds."""
QUICK_SPARK = {
    "spark.python.daemon.module": PYTHON_DAEMON,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.sql.session.timeZone": "UTC",
    # As in the session of a query: Spark starts another Python daemon where this setting differs.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Compiling a plan takes longer than a few hundred rows through an interpreter.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For sessions of tests: little to start, nothing that listens beyond this host."""


class Session:
    """A process and everything it starts, in a session of their own.

    Spark's Python daemon leaves the process group, but nothing leaves the session.
    """

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"} | dict(env),
                start_new_session=True,
            )

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """The exit code, once it ends."""
        try:
            return self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end in {deadline_s} s:\n{self.said()}") from None

    def has_ended(self) -> bool:
        """Whether the process that was started has ended by itself."""
        return self._process.poll() is not None

    def run_on(self, seconds: float) -> None:
        """Let it run for this long; it must not end."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(seconds)
            raise AssertionError(f"it ended with {code}:\n{self.said()}")

    def wait_for(self, reached: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
        """Wait for a condition while it runs; it must not end before."""
        ends = time.monotonic() + deadline_s
        while not reached():
            assert time.monotonic() < ends, f"not reached in {deadline_s} s:\n{self.said()}"
            self.run_on(POLL_S)

    def pids(self) -> list[int]:
        """All processes of the session that live."""
        return [pid for pid in psutil.pids() if _session_of(pid) == self._process.pid and not _is_dead(pid)]

    def python_workers(self) -> list[int]:
        """Spark's Python daemon and its workers."""
        return [pid for pid in self.pids() if is_python_worker(pid)]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill −9 every process, those too that were started meanwhile."""
        while self.pids():
            self.signal(signal.SIGKILL)
            self._process.poll()
        self._process.wait(DEADLINE_S)

    def said(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-6000:]


def _session_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def _is_dead(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    return True


def _command_of(pid: int) -> Sequence[str]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).cmdline()
    return ()


def is_python_worker(pid: int) -> bool:
    """Whether this is Spark's Python daemon or one of its workers."""
    return bool({"pyspark.daemon", PYTHON_DAEMON, TEST_PYTHON_DAEMON} & set(_command_of(pid)))


def own_python_workers() -> list[int]:
    """The Python daemon and the workers of this process's Spark."""
    return [pid for pid in psutil.pids() if is_python_worker(pid) and _test_run_of(pid) == str(os.getpid())]


def _test_run_of(pid: int) -> str | None:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return psutil.Process(pid).environ().get(TEST_RUN)
    return None


class Driver(Session):
    """A driver that waits for its order to start."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str], order: Path) -> None:
        super().__init__(command, log, env)
        self._order = order

    def go(self, order: str = RUN) -> None:
        """Let it take over the job: `RUN` or `FINISH`."""
        hidden = self._order.with_suffix(".tmp")
        hidden.write_text(order)
        hidden.rename(self._order)


class TotalsJob:
    """A folder with the input, state and output of one job, and the drivers started for it."""

    module = "tests.support.spark.pipeline_process"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._drivers: list[Driver] = []

    def start(self, order: str = RUN) -> Driver:
        """A driver that takes over the job at once."""
        driver = self.standby()
        driver.go(order)
        return driver

    def standby(self) -> Driver:
        """A driver in its own process, with its own temporary directory. It waits for its order."""
        number = len(self._drivers)
        scratch = self.folder / f"scratch-{number}"
        scratch.mkdir()
        order = scratch / "order"
        command = [sys.executable, "-m", self.module, str(self.folder), str(order)]
        env = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "PYSPARK_PYTHON": sys.executable}
        driver = Driver(command, self.folder / f"driver-{number}.log", env, order)
        self._drivers.append(driver)
        return driver

    def kill_all(self) -> None:
        """Kill all drivers, at the end of a test."""
        for driver in self._drivers:
            driver.kill()

    @property
    def root(self) -> Path:
        return self.folder / "checkpoints" / JOB

    def newest_epoch(self) -> int:
        """The newest published epoch; 0 before the first."""
        return max((int(record.stem) for record in (self.root / "epochs").glob("*.json")), default=0)

    def fence(self) -> bytes:
        """What `generation.json` says; nothing before the first claim."""
        with suppress(FileNotFoundError):
            return (self.root / "generation.json").read_bytes()
        return b""

    def has_objects_of(self, epoch: int) -> bool:
        """Whether anything of an epoch was written."""
        return (self.root / "checkpoints" / str(epoch)).exists()

    def has_a_store_lock(self) -> bool:
        """Whether some process holds a lock of the local store; stopped so, it would stop all others."""
        inodes = {str(path.stat().st_ino) for path in self.folder.glob("*/.lakestate/locks/*")}
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]
        return any(fields[5].rpartition(":")[2] in inodes for fields in held)

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Every object of state and every visible file of output."""
        for top in (self.root, self.folder / "out"):
            for path in sorted(top.rglob("*")):
                name = path.relative_to(self.folder)
                if path.is_file() and not any(part.startswith((".", "_")) for part in name.parts):
                    yield str(name), path.read_bytes()


def local_spark() -> Any:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.appName(JOB)
        # A task may fail four times: the test kills workers, and each kill fails a task.
        .master("local[2,4]")
        .config(map=QUICK_SPARK)
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} -Djava.io.tmpdir={os.environ['TMPDIR']}")
        .getOrCreate()
    )


def totals_pipeline(spark: Any, folder: Path, cache_dir: Path | None = None) -> Any:
    """Input files → running totals per user → files or, if there is a warehouse, tables, below one folder."""
    from tests.support.spark.pipelines import read_stream
    from tests.support.spark.totals import Totals

    import lakestate as ls

    pipeline = ls.Pipeline(JOB, f"file://{folder}/checkpoints", parallelism=2, cache_dir=cache_dir)
    totals = pipeline.source(read_stream(spark, folder / "in")).key_by("user").apply("totals", Totals())
    # Small enough that files are finished in most epochs, large enough that some stay open.
    if not (folder / WAREHOUSE).exists():
        totals.sink("out", ls.ParquetSink(f"file://{folder}/out", roll=ls.Roll(bytes="3KB", interval=None)))
        return pipeline
    catalog = f"file://{folder}/{WAREHOUSE}"
    roll = ls.Roll(bytes="6KB", interval=None, visible="0 seconds")
    totals.sink("out", ls.IcebergSink("shop.totals", catalog=catalog, roll=roll))
    totals.sink("kept", ls.IcebergSink("shop.kept", catalog=catalog, key=["user"]))
    return pipeline


def main(build: Callable[[Any, Path], Any] = totals_pipeline) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("order", type=Path, help="the file that tells what to do")
    given = arguments.parse_args()
    spark = local_spark()
    # What the first epoch would otherwise wait for: Spark's classes, and Python workers.
    spark.range(2).repartition(2).mapInArrow(lambda batches: batches, "id bigint").collect()
    test = os.getppid()
    while not given.order.exists():
        if os.getppid() != test:
            raise SystemExit("the test that started this driver is gone")
        time.sleep(POLL_S)
    order = given.order.read_text()
    # Its cache is in its temporary directory: every driver runs as if it were on another host.
    pipeline = build(spark, given.folder)
    query = pipeline.start(trigger={"availableNow": True} if order == FINISH else None)
    query.awaitTermination()
    query.stop(finish_files=True)


if __name__ == "__main__":
    main()
