"""Where the time of an epoch goes, part by part.

A subtask measures its own parts: code that takes long names its part, and parts within parts are not
counted twice. What threads do beside the subtask counts as far as the subtask waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an epoch, who spends the time, and on what."""

    name: str
    owner: str
    what: str


SPARK, OWN, USER = "Spark", "Lakestate", "your code"

TRIGGER, BUILD, SCAN, INPUT, RESTORE = "trigger", "build", "scan", "input", "restore"
FETCH, LOOKUP, OPERATOR, WRITE, SINK = "fetch", "lookup", "operator", "write", "sink"
OUTPUT, MERGE, ENCODE, UPLOAD, TASKS = "output", "merge", "encode", "upload", "tasks"
PUBLISH, COMMIT = "publish", "commit"

PARTS = (
    Part(TRIGGER, SPARK, "finds new offsets, writes its logs, starts the batch"),
    Part(BUILD, OWN, "describes the epoch to Spark"),
    Part(SCAN, SPARK, "plans the job, reads the sources, sorts rows to their subtasks"),
    Part(INPUT, SPARK, "brings rows to Python through Arrow"),
    Part(RESTORE, OWN, "prepares the tables of a subtask"),
    Part(FETCH, OWN, "opens state files, from the cache or the store"),
    Part(LOOKUP, OWN, "looks up state"),
    Part(OPERATOR, USER, "operators, ready ones too, without what they do with state"),
    Part(WRITE, OWN, "takes changes of state"),
    Part(SINK, OWN, "writes output"),
    Part(OUTPUT, SPARK, "takes rows from Python"),
    Part(MERGE, OWN, "puts the changes of an epoch in order"),
    Part(ENCODE, OWN, "makes Parquet of them"),
    Part(UPLOAD, OWN, "stores files and metadata"),
    Part(TASKS, SPARK, "starts and ends tasks, returns what they report"),
    Part(PUBLISH, OWN, "publishes the epoch"),
    Part(COMMIT, OWN, "makes output visible, marks the epoch as committed"),
)
"""All parts, in the order in which an epoch goes through them."""

_WAIT = "wait"


class PartTimes:
    """The milliseconds of each part of one piece of work. One thread measures; others may add to it."""

    def __init__(self, root: str) -> None:
        self._ms: dict[str, float] = {}
        self._beside: dict[str, float] = {}
        self._open = [root]
        self._since = time.perf_counter()
        self._lock = threading.Lock()

    def begin(self, part: str) -> None:
        """The part that is open pauses, and this one begins."""
        self._credit()
        self._open.append(part)

    def end(self) -> None:
        """The part that began last ends, and the one before it goes on."""
        self._credit()
        self._open.pop()

    def add_beside(self, parts: Mapping[str, float]) -> None:
        """What another thread has done meanwhile."""
        with self._lock:
            for part, ms in parts.items():
                self._beside[part] = self._beside.get(part, 0.0) + ms

    def milliseconds(self) -> dict[str, float]:
        """The time of each part until now. Waiting is shared out to what was waited for."""
        self._credit()
        found = dict(self._ms)
        waited, beside = found.pop(_WAIT, 0.0), sum(self._beside.values())
        for part, ms in self._beside.items():
            found[part] = found.get(part, 0.0) + waited * ms / beside
        return found

    def _credit(self) -> None:
        now = time.perf_counter()
        part = self._open[-1]
        self._ms[part] = self._ms.get(part, 0.0) + (now - self._since) * 1000
        self._since = now


class _Current(threading.local):
    times: PartTimes | None = None


_CURRENT = _Current()


@contextmanager
def measured(times: PartTimes) -> Iterator[None]:
    """What this thread does inside counts for these times."""
    before, _CURRENT.times = _CURRENT.times, times
    try:
        yield
    finally:
        _CURRENT.times = before


@contextmanager
def timed(name: str) -> Iterator[None]:
    """What happens inside belongs to a part; also a decorator. Costs nothing much if nobody measures."""
    times = _CURRENT.times
    if times is None:
        yield
        return
    times.begin(name)
    try:
        yield
    finally:
        times.end()


def each_in(name: str, items: Iterable[T]) -> Iterator[T]:
    """The same items. The time that it takes to get each belongs to a part."""
    iterator = iter(items)
    while True:
        with timed(name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


@contextmanager
def waiting() -> Iterator[None]:
    """This thread waits inside for work that was given to others with `beside`."""
    with timed(_WAIT):
        yield


def beside(root: str, work: Callable[P, T]) -> Callable[P, T]:
    """Work for another thread, whose time counts for what this thread measures."""
    times = _CURRENT.times
    if times is None:
        return work

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if _CURRENT.times is times:
            # There are no other threads here.
            with timed(root):
                return work(*args, **kwargs)
        own = PartTimes(root)
        with measured(own):
            done = work(*args, **kwargs)
        times.add_beside(own.milliseconds())
        return done

    return run
