"""What arrives from this machine is acknowledged at once."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakestate.spark.tasks.prompt_input import acknowledge_input

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has TCP_QUICKACK and /proc")


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """This end of a connection on the loopback interface, whose acknowledgements the system may delay."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            yield ours


def descriptors() -> set[int]:
    """The open files of this process, without the one with which they are listed."""
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}


def test_a_connection_on_the_loopback_interface_is_told_not_to_wait(connection: socket.socket) -> None:
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0
    acknowledge_input()
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


def test_other_descriptors_are_left_as_they_are(connection: socket.socket) -> None:
    one, other = socket.socketpair()
    with one, other, socket.socket() as unconnected, socket.create_server(("127.0.0.1", 0)):
        before = descriptors()
        acknowledge_input()
        assert descriptors() == before
        one.sendall(b"rows")
        assert other.recv(4) == b"rows"
        assert unconnected.fileno() >= 0


def test_a_system_without_the_option_is_no_problem(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = socket.TCP_QUICKACK
    monkeypatch.delattr(socket, "TCP_QUICKACK")
    acknowledge_input()
    assert connection.getsockopt(socket.IPPROTO_TCP, option) == 0
