"""An HTTP proxy in front of an S3 server that counts requests as S3 charges them, whoever sends them.

Repetitions and requests that fail are counted too: S3 charges for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.support.servers.forwarding import ForwardingHandler
from tests.support.servers.local_http import LocalHttpServer


class Kind(Enum):
    WRITE = "write"
    READ = "read"
    LIST = "list"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class SeenRequest:
    at_s: float
    """Seconds since 1970 at which it arrived."""
    kind: Kind
    written_bytes: int
    """Of the object, without what a signature adds to the body."""
    key: str


class CountingProxy:
    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self._seen: list[SeenRequest] = []
        self._lock = threading.Lock()
        self._server = _Server(_Handler)
        self._server.proxy = self

    @property
    def endpoint(self) -> str:
        return self._server.endpoint

    def note(self, request: SeenRequest) -> None:
        with self._lock:
            self._seen.append(request)

    def take(self) -> list[SeenRequest]:
        """The requests since the last call, in the order of their arrival."""
        with self._lock:
            taken, self._seen = self._seen, []
        return taken

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


class _Server(LocalHttpServer):
    proxy: CountingProxy


class _Handler(ForwardingHandler):
    server: _Server

    def do_request(self) -> None:
        at_s = time.time()
        body = self.read_body()
        proxy = self.server.proxy
        kind = kind_of(self.command, self.path)
        size = int(self.headers.get("x-amz-decoded-content-length") or len(body)) if kind is Kind.WRITE else 0
        proxy.note(SeenRequest(at_s, kind, size, urlsplit(self.path).path))
        self.send_answer(self.forward(body, proxy.target_port))


def kind_of(method: str, path: str) -> Kind:
    """What S3 charges a request as.

    >>> kind_of("GET", "/bucket?list-type=2&prefix=a"), kind_of("GET", "/bucket/a")
    (<Kind.LIST: 'list'>, <Kind.READ: 'read'>)
    >>> kind_of("POST", "/bucket?delete"), kind_of("POST", "/bucket/a?uploads")
    (<Kind.DELETE: 'delete'>, <Kind.WRITE: 'write'>)
    """
    parts = urlsplit(path)
    query: Mapping[str, object] = parse_qs(parts.query, keep_blank_values=True)
    if method == "DELETE" or (method == "POST" and "delete" in query):
        return Kind.DELETE
    if method in ("PUT", "POST"):
        return Kind.WRITE
    is_listing = "list-type" in query or "prefix" in query or "uploads" in query
    return Kind.LIST if method == "GET" and is_listing else Kind.READ
