"""Where and when a store fails: hooks for a `FaultyStore`, and damage to an object."""

from __future__ import annotations

from collections.abc import Callable

from lakestate.storage import ObjectStore
from lakestate.testing.faults import Fault, Hook, Operation


def faults_on(operation: Operation, path: str, *faults: Fault) -> Hook:
    """Faults for the calls of one kind about one path, in turn; none afterwards."""
    waiting = iter(faults)

    def hook(asked: Operation, about: str) -> Fault:
        return next(waiting, Fault.NONE) if (asked, about) == (operation, path) else Fault.NONE

    return hook


def before_call(number: int, act: Callable[[], object]) -> Hook:
    """A hook that does something else just before the call of that number."""
    numbers = iter(range(10**6))

    def hook(operation: Operation, path: str) -> Fault:
        if next(numbers) == number:
            act()
        return Fault.NONE

    return hook


def flip_bit(store: ObjectStore, path: str) -> None:
    """Change one bit in the middle of an object."""
    data = bytearray(store.get(path).data)
    data[len(data) // 2] ^= 1
    store.put(path, bytes(data))
