"""A PostgreSQL server for tests: Debian's binaries, a free port, its own data.

It can be killed and started again on the same port and data. PostgreSQL refuses to run as root, so root
starts it as another user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import psycopg
import pytest

from lakestate.testing.s3_server import free_ports

START_DEADLINE_S = 60
POLL_S = 0.02
BINARIES = "/usr/lib/postgresql"
USERS = ("postgres", "nobody")
SETTINGS = (
    "fsync=off",
    "unix_socket_directories=",
    "max_prepared_transactions=16",
    "log_min_messages=warning",
)
"""fsync: a killed process loses nothing that the kernel has, and no test cuts the power of the machine."""


class PostgresServer:
    """One server. Use it as a context manager, or the fixture `postgres`: one for each test file."""

    def __init__(self) -> None:
        self._binaries = _find_binaries()
        self._user = _other_user() if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="lakestate-postgres-"))
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For `psycopg.connect`."""
        return f"postgresql://lakestate@127.0.0.1:{self._port}/postgres"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection that commits each statement."""
        return psycopg.connect(self.url, autocommit=True, connect_timeout=5)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        assert self._process is None, "the server is already running"
        if not self._data.exists():
            self._initialise()
        settings = [word for setting in SETTINGS for word in ("-c", setting)]
        command = ["postgres", "-D", str(self._data), "-h", "127.0.0.1", "-p", str(self._port), *settings]
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(*command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                start_new_session=True,
                cwd=self._folder,
            )
        self._await_connection()

    def kill(self) -> None:
        """Kill −9 all of its processes. Data and port are kept for `start`."""
        process, self._process = self._process, None
        if process is None:
            return
        # Each process of PostgreSQL leaves the group, and the next server waits until all have ended.
        all_of_them = [parent := psutil.Process(process.pid), *parent.children(recursive=True)]
        for each in all_of_them:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(all_of_them)
        process.wait()

    def restart(self) -> None:
        """Kill the server and start it again on the same port and data."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Kill the server and remove its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log_file(self) -> Path:
        return self._folder / "postgres.log"

    def _command(self, program: str, *arguments: str) -> list[str]:
        return [str(self._binaries / program), *arguments]

    def _initialise(self) -> None:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        options = ("--username=lakestate", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        done = subprocess.run(
            self._command("initdb", "-D", str(self._data), *options),
            capture_output=True,
            text=True,
            user=self._user,
            timeout=START_DEADLINE_S,
            check=False,
            cwd=self._folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _await_connection(self) -> None:
        ends = time.monotonic() + START_DEADLINE_S
        while not self._accepts():
            assert self.is_running, f"the server ended:\n{self._log_tail()}"
            assert time.monotonic() < ends, f"the server does not answer:\n{self._log_tail()}"
            time.sleep(POLL_S)

    def _accepts(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _log_tail(self) -> str:
        return self._log_file.read_text(errors="replace")[-4000:]


def _find_binaries() -> Path:
    """The newest version that Debian installed, or what PATH has; else the test is skipped."""
    versions = [path for path in Path(BINARIES).glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    on_path = shutil.which("initdb")
    if on_path is None:
        pytest.skip(
            f"PostgreSQL is not installed: no initdb in {BINARIES}/*/bin or PATH; run scripts/require-servers"
        )
    return Path(on_path).resolve().parent


def _other_user() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in USERS if user in known)
