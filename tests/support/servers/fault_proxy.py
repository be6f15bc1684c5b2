"""An HTTP proxy between a store and its server that loses, delays and invents answers.

Each fault is used up by one request that matches its method; what has none is passed on.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Self

from tests.support.servers.forwarding import Answer, ForwardingHandler
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


class _Handler(ForwardingHandler):
    server: _Server

    def do_request(self) -> None:
        body = self.read_body()
        proxy = self.server.proxy
        planned = proxy.plan.next_for(self.command)
        acts = planned is None or planned.fault.server_acts
        answer = self.forward(body, proxy.target_port) if acts else _NO_ANSWER
        if planned is not None and planned.meanwhile is not None:
            planned.meanwhile()
        match planned.fault if planned is not None else None:
            case None:
                self.send_answer(answer)
            case Fault.RESET_BEFORE | Fault.RESET_AFTER:
                self._reset()
            case Fault.CUT_ANSWER:
                self.send_answer(answer, share=0.5)
                self._reset()
            case Fault.DELAY:
                proxy.stopped.wait(proxy.delay_s)
                self.send_answer(answer)
            case Fault.ANSWER_503 | Fault.ERROR_500 | Fault.ANSWER_429 as fault:
                self.send_answer(Answer(int(fault.name[-3:]), [], b"<Error><Code>Injected</Code></Error>"))

    def _reset(self) -> None:
        # A linger of zero makes close() send RST instead of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


_NO_ANSWER = Answer(502, [], b"")
