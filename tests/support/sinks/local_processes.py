"""Processes that write to one local directory, and die at any step of what they do to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakestate.sinks.files.local.output import HiddenFile, LocalOutput
from lakestate.sinks.files.sink import FileSink
from lakestate.testing.faults import SimulatedCrash


@dataclass
class Steps:
    """Counts what all processes do to the directory, and kills the one that comes to the chosen step."""

    crash_at: int | None = None
    moment: str = "before"
    done: list[str] = field(default_factory=list)

    def do(self, name: str, act: Callable[[], Any], torn: Callable[[], Any] = lambda: None) -> Any:
        number = len(self.done)
        self.done.append(name)
        if number != self.crash_at:
            return act()
        if self.moment == "torn":
            torn()
        elif self.moment == "after":
            act()
        raise SimulatedCrash(f"{self.moment} step {number}: {name}")


class CrashingFile(HiddenFile):
    steps: Steps

    def append(self, data: bytes) -> None:
        whole, half = super().append, data[: len(data) // 2]
        self.steps.do("append", lambda: whole(data), lambda: whole(half))

    def sync(self) -> None:
        self.steps.do("sync", super().sync)


class CrashingOutput(LocalOutput):
    def __init__(self, root: Path, steps: Steps) -> None:
        super().__init__(root)
        self._steps = steps
        self.files: list[CrashingFile] = []

    def copy_to(self, source: HiddenFile, temporary: str) -> HiddenFile:
        copy_to = super().copy_to

        def torn() -> None:
            half = HiddenFile(source.path, source.descriptor, source.position // 2, source.crc32)
            copy_to(half, temporary).close()

        return self._crashing(self._steps.do("copy", lambda: copy_to(source, temporary), torn))

    def publish_snapshot(self, temporary: str, path: str, size_bytes: int) -> None:
        publish = super().publish_snapshot
        self._steps.do("publish snapshot", lambda: publish(temporary, path, size_bytes))

    def create(self, temporary: str) -> HiddenFile:
        create = super().create
        return self._crashing(self._steps.do("create", lambda: create(temporary)))

    def reopen(self, temporary: str, position: int, crc32: int | None, otherwise: str) -> HiddenFile:
        reopen = super().reopen
        return self._crashing(self._steps.do("reopen", lambda: reopen(temporary, position, crc32, otherwise)))

    def publish(self, temporary: str, path: str, size_bytes: int, crc32: int | None = None) -> None:
        publish = super().publish
        self._steps.do("publish", lambda: publish(temporary, path, size_bytes, crc32))

    def remove(self, temporary: str) -> None:
        remove = super().remove
        self._steps.do("remove", lambda: remove(temporary))

    def _crashing(self, file: HiddenFile) -> HiddenFile:
        if isinstance(file, CrashingFile):
            return file
        crashing = CrashingFile(file.path, file.descriptor, file.position, file.crc32)
        crashing.steps = self._steps
        self.files.append(crashing)
        return crashing


@dataclass
class Processes:
    root: Path
    sink: Callable[[Path], FileSink]
    steps: Steps = field(default_factory=Steps)
    last: CrashingOutput | None = None

    def open_sink(self) -> FileSink:
        self.end_last()
        return self.open_beside()

    def open_beside(self) -> FileSink:
        """A sink of a process that runs while others do."""
        sink = self.sink(self.root)
        self.last = CrashingOutput(self.root, self.steps)
        sink.__dict__["_local_output"] = self.last
        return sink

    def end_last(self) -> None:
        """What the operating system does when a process is gone: its locks are free."""
        for file in self.last.files if self.last is not None else ():
            file.close()
