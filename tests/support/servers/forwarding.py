"""An HTTP handler that passes requests on to a server on this machine, and its answers back.

Headers are passed on as they are, `Host` included, so that signatures hold.
"""

from __future__ import annotations

import http.client
from abc import abstractmethod
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def length(self, method: str) -> str:
        told = {name.lower(): value for name, value in self.headers}.get("content-length")
        return told if method == "HEAD" and told is not None else str(len(self.body))


class ForwardingHandler(BaseHTTPRequestHandler):
    """What to do with a request is left to `do_request`."""

    protocol_version = "HTTP/1.1"

    @abstractmethod
    def do_request(self) -> None: ...

    def do_GET(self) -> None:
        self.do_request()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - http.server's names

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def forward(self, body: bytes, target_port: int) -> Answer:
        upstream = http.client.HTTPConnection("127.0.0.1", target_port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            response = upstream.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            upstream.close()

    def send_answer(self, answer: Answer, share: float = 1) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.length(self.command))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: int(len(answer.body) * share)])
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Keep the output quiet."""
