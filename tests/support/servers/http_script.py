"""An HTTP server whose answers a test writes as a function: for what no real server does on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Self

from tests.support.servers.local_http import LocalHttpServer

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.storage import ObjectStore, open_store

MODIFIED = "Mon, 16 Nov 2026 06:00:00 GMT"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """`pieces` are sent one by one; with less than `length` bytes the connection breaks off."""

    status: int = 200
    pieces: Iterable[bytes] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int = 0


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(status, [body], headers, len(body))


Script = Callable[[Request], Answer]


class HttpScript:
    """The server. `requests` are those that it saw, in the order of their arrival."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self._server = _Server(_Handler)
        self._server.script = self

    def store(self, retry: RetryPolicy) -> ObjectStore:
        options = {
            "endpoint": self._server.endpoint,
            "region": "us-east-1",
            "access_key_id": "access",
            "secret_access_key": "secret",
        }
        return open_store(StoreConfig("s3://bucket/prefix", options, retry))

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


class _Server(LocalHttpServer):
    script: HttpScript


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        self.server.script.requests.append(request)
        self._send(self.server.script.script(request))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_request  # noqa: N815 - http.server's names

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in {"Last-Modified": MODIFIED, **answer.headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(answer.length))
        self.end_headers()
        sent = 0
        for piece in answer.pieces:
            self.wfile.write(piece)
            self.wfile.flush()
            sent += len(piece)
        self.close_connection = self.close_connection or sent < answer.length

    def log_message(self, *_: object) -> None:
        """Keep the tests' output quiet."""
