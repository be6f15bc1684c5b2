"""An HTTP proxy between a store and its server that loses, delays and invents answers.

Requests are forwarded with their headers as they are, `Host` included, so that signatures hold.
Each fault is used up by one request that matches its method; what has none is passed on.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Self

from tests.support.servers.local_http import LocalHttpServer

if TYPE_CHECKING:
    from collections.abc import Callable


class Fault(Enum):
    RESET_BEFORE = "the connection is reset before the server sees the request"
    RESET_AFTER = "the server acts, then the connection is reset"
    CUT_ANSWER = "the server acts, half of its answer arrives"
    DELAY = "the server acts, the answer comes after the client's patience"
    ANSWER_503 = "the server does not act and says 503"
    ANSWER_429 = "the server does not act and says 429"
    ERROR_500 = "the server acts, then says 500"

    @property
    def server_acts(self) -> bool:
        return self not in (Fault.RESET_BEFORE, Fault.ANSWER_503, Fault.ANSWER_429)


@dataclass(slots=True)
class Planned:
    fault: Fault
    method: str
    forever: bool = False
    meanwhile: Callable[[], object] | None = None
    """Called when the fault strikes, after the server has acted."""


@dataclass(slots=True)
class Plan:
    faults: deque[Planned] = field(default_factory=deque)
    struck: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_for(self, method: str) -> Planned | None:
        with self.lock:
            for planned in self.faults:
                if planned.method in (method, "*"):
                    if not planned.forever:
                        self.faults.remove(planned)
                    self.struck.append(planned.fault)
                    return planned
        return None


class FaultProxy:
    def __init__(self, target_port: int, delay_s: float) -> None:
        self.plan = Plan()
        self.stopped = threading.Event()
        self.delay_s = delay_s
        self.target_port = target_port
        self._server = _Server(_Handler)
        self._server.proxy = self

    @property
    def endpoint(self) -> str:
        return self._server.endpoint

    def once(self, fault: Fault, method: str, meanwhile: Callable[[], object] | None = None) -> None:
        self.plan.faults.append(Planned(fault, method, meanwhile=meanwhile))

    def always(self, fault: Fault, method: str = "*") -> None:
        self.plan.faults.append(Planned(fault, method, forever=True))

    def heal(self) -> None:
        self.plan.faults.clear()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.stop()


class _Server(LocalHttpServer):
    proxy: FaultProxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.server.proxy
        planned = proxy.plan.next_for(self.command)
        answer = self._forward(body) if planned is None or planned.fault.server_acts else None
        if planned is not None and planned.meanwhile is not None:
            planned.meanwhile()
        match planned.fault if planned is not None else None:
            case None:
                self._send(answer)
            case Fault.RESET_BEFORE | Fault.RESET_AFTER:
                self._reset()
            case Fault.CUT_ANSWER:
                self._send(answer, share=0.5)
                self._reset()
            case Fault.DELAY:
                proxy.stopped.wait(proxy.delay_s)
                self._send(answer)
            case Fault.ANSWER_503 | Fault.ERROR_500 | Fault.ANSWER_429 as fault:
                self._send(_Answer(int(fault.name[-3:]), [], b"<Error><Code>Injected</Code></Error>"))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_request  # noqa: N815 - http.server's names

    def _forward(self, body: bytes) -> _Answer:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.proxy.target_port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            response = upstream.getresponse()
            return _Answer(response.status, response.getheaders(), response.read())
        finally:
            upstream.close()

    def _send(self, answer: _Answer | None, share: float = 1) -> None:
        assert answer is not None
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.length(self.command))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: int(len(answer.body) * share)])
        self.wfile.flush()

    def _reset(self) -> None:
        # A linger of zero makes close() send RST instead of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Keep the tests' output quiet."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def length(self, method: str) -> str:
        told = {name.lower(): value for name, value in self.headers}.get("content-length")
        return told if method == "HEAD" and told is not None else str(len(self.body))
