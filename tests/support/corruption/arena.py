"""The objects of a job that can be damaged, and how to damage and restore them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.corruption.job import JOB, CorruptionJob, World
from tests.support.corruption.mutations import Damage, Original

import lakestate as ls
from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.coordinator.retention.retain import read_references
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.destination import LocalResumePoint, UploadResumePoint
from lakestate.sinks.files.open_files import OPEN_FILES, OpenFile, OpenFiles
from lakestate.sinks.files.pre_commit import CompletedUpload, FilePreCommit, LocalFile, PreCommit
from lakestate.tables.manager import TableManager

PREFIX = f"{JOB}/"


@dataclass(frozen=True)
class Target:
    """An object to damage."""

    kind: str
    place: str
    path: str
    names: tuple[str, ...]
    """One of these must be in what is said about it."""
    epochs: tuple[Epoch, ...] = ()
    """Those that cannot be restored without it."""


class Arena:
    """One world of the job, its targets, and the means to damage them."""

    def __init__(self, job: CorruptionJob, world: World) -> None:
        self.job, self.world = job, world
        job.put_back(world)
        self.newest = max(world.upto)
        targets = [*self._state_targets(), *self._output_targets(), *self._local_targets()]
        self.targets: dict[str, list[Target]] = {}
        for target in targets:
            self.targets.setdefault(target.kind, []).append(target)
        self._by_path = {target.path: target for target in targets}

    def original(self, target: Target) -> Original:
        contents = self._contents(target.place)
        siblings = [other for other in self.targets[target.kind] if other.path != target.path]
        if not siblings and target.place == "state":
            siblings = self.targets["epoch record"]
        others = [(other.path, contents[other.path]) for other in siblings if other.place == target.place]
        earlier = list(self.world.history.get(target.path, ()))
        if target.kind not in ("fence", "retention boundary", "tag"):
            before = [other for other in siblings if other.path < target.path]
            earlier += [contents[other.path] for other in before]
        return Original(contents[target.path], others, earlier)

    def apply(self, target: Target, done: Damage) -> list[Target]:
        """Damage the object, and the other one if two are swapped; all that is damaged now."""
        original = self._contents(target.place)[target.path]
        self._write(target.place, target.path, done.data)
        if done.swapped_with is None:
            return [target]
        self._write(target.place, done.swapped_with, original)
        return [target, self._by_path[done.swapped_with]]

    def is_there(self, path: str) -> bool:
        """Whether the state store has an object."""
        return any(info.path == path for info in self.job.state_client.list(path))

    def put_back(self, damaged: Sequence[Target]) -> None:
        """Undo it."""
        for target in damaged:
            self._write(target.place, target.path, self._contents(target.place)[target.path])

    def _contents(self, place: str) -> Mapping[str, bytes]:
        worlds = {"state": self.world.state, "output": self.world.output, "local": self.world.local}
        return worlds[place]

    def _write(self, place: str, path: str, data: bytes | None) -> None:
        if place == "local":
            file = self.job.local_root / path
            file.unlink(missing_ok=True) if data is None else file.write_bytes(data)
            return
        client = self.job.state_client if place == "state" else self.job.output_client
        client.delete([path]) if data is None else client.put(path, data)

    def _state_targets(self) -> Iterator[Target]:
        job = self.job.backend.objects(JOB)
        needs: dict[Epoch, frozenset[str]] = {}
        for epoch in self.world.upto:
            found = read_references(job, epoch)
            assert not isinstance(found, Damaged)
            needs[epoch] = found
        for full in sorted(self.world.state):
            path = full.removeprefix(PREFIX)
            kind = parse_object_name(path).kind
            epochs = tuple(epoch for epoch, paths in needs.items() if path in paths)
            if kind in (ObjectKind.FENCE, ObjectKind.BOUNDARY, ObjectKind.TAG):
                yield Target(kind.value, "state", full, (path,))
            elif not epochs:
                yield Target("orphan", "state", full, (path,))
            elif kind is ObjectKind.COMMITTED:
                yield Target(kind.value, "state", full, (path,))
            else:
                yield Target(_state_kind(path, kind), "state", full, (path,), epochs)

    def _output_targets(self) -> Iterator[Target]:
        used = self._used_parts()
        for path in sorted(self.world.output, key=self._order):
            if path.startswith("_lakestate/lanes/"):
                yield Target("lane claim", "output", path, (path,))
            elif path.startswith(".lakestate/uploads/"):
                token, name = path.split("/")[2:]
                file, parts = used[token]
                number = 0 if name == "_upload" else int(name.removeprefix("_part-"))
                names = (file, path)
                if number == 0:
                    yield Target("upload record", "output", path, names)
                elif number in parts:
                    yield Target("sink part", "output", path, names)
                else:
                    yield Target("part without reference", "output", path, names)

    def _order(self, path: str) -> str:
        """Tokens of uploads are random: the order that a seed sees must not be."""
        if not path.startswith(".lakestate/uploads/"):
            return path
        token, name = path.split("/")[2:]
        return f"{self._used_parts()[token][0]}/{name}"

    def _used_parts(self) -> dict[str, tuple[str, set[int]]]:
        """By upload: its file, and the numbers of the parts that the newest epoch refers to."""
        used: dict[str, tuple[str, set[int]]] = {}
        for record in self._open_files("out"):
            point = record.resume_point
            assert isinstance(point, UploadResumePoint)
            assert point.token is not None
            used[point.token] = (record.path, {part.number for part in point.parts})
        for file in self._finished_files("out"):
            assert isinstance(file.content, CompletedUpload)
            used[file.content.token] = (file.path, {part.number for part in file.content.parts})
        return used

    def _open_files(self, sink_id: str) -> Iterator[OpenFile]:
        tables = TableManager.load(
            ls.TaskInfo(JOB, sink_id), self.job.sinks[sink_id].tables(), self.job.backend, self.newest
        )
        yield from OpenFiles(tables.keyed(OPEN_FILES)).records()

    def _finished_files(self, sink_id: str) -> Iterator[FilePreCommit]:
        manifest = self.job.backend.load_checkpoint_metadata(JOB, self.newest)
        for sink in (sink for sink in manifest.sinks if sink.sink_id == sink_id):
            for data in decode_pre_commits(sink.data, "manifest"):
                yield from PreCommit.decode(data).finished

    def _local_targets(self) -> Iterator[Target]:
        """Copies that attempts left behind are no targets: nothing refers to them."""
        places = [record.resume_point for record in self._open_files("local")]
        used = {place.temporary for place in places if isinstance(place, LocalResumePoint)}
        contents = [file.content for file in self._finished_files("local")]
        used |= {content.temporary for content in contents if isinstance(content, LocalFile)}
        for path in sorted(self.world.local):
            assert path.startswith(".lakestate/open/"), path
            if Path(path).name in used:
                yield Target("hidden file", "local", path, (Path(path).name,))


def _state_kind(path: str, kind: ObjectKind) -> str:
    if kind is not ObjectKind.DATA:
        return kind.value
    table = path.rsplit("/", 1)[1].split("-")[0]
    kinds = {"totals": "KeyedTable", "recent": "TimeKeyTable", "last": "GlobalKeyedTable"}
    return f"run of a {kinds.get(table, 'sink')}"
