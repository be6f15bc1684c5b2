"""What a verification has read so far, what is wrong with it, and which epochs need it.

Many threads write to an `Audit`. It keeps names and flaws, never contents, so it grows with the number of
objects and not with their size.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import xxhash

from lakestate.errors import (
    CorruptionError,
    IncompatibleStateError,
    InvalidInputError,
    LakestateError,
    MisplacedObjectError,
    NotFoundError,
)
from lakestate.job.objects import JobObjects
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.protocol.values import Epoch, ObjectRef
from lakestate.tables.data_files import ContradictionError
from lakestate.verification.report import Finding, Problem

T = TypeVar("T")

STATE_ERRORS = (CorruptionError, IncompatibleStateError, InvalidInputError, NotFoundError)
"""What reading a damaged object raises. If a store does not answer, the error is raised instead."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with one object."""

    problem: Problem
    found: str = ""
    expected: str = ""
    consequence: str = ""


class Audit:
    """What is known about the objects of a job."""

    def __init__(self, objects: JobObjects) -> None:
        self.objects = objects
        self.checked: Counter[str] = Counter()
        self.bytes_read = 0
        self._lock = threading.Lock()
        self._flaws: dict[str, list[Flaw]] = {}
        self._epochs: dict[str, set[Epoch]] = {}
        self._users: dict[str, set[str]] = {}

    def count_read(self, path: str, size_bytes: int) -> None:
        """Count an object that was read."""
        with self._lock:
            self.checked[parse_object_name(path).kind.value] += 1
            self.bytes_read += size_bytes

    def add_flaw(self, path: str, flaw: Flaw) -> None:
        """Record that something is wrong with an object."""
        with self._lock:
            known = self._flaws.setdefault(path, [])
            if flaw not in known:
                known.append(flaw)

    @property
    def is_clean(self) -> bool:
        """True if nothing is wrong with any object so far."""
        return not self._flaws

    def clear_flaws(self, path: str) -> None:
        """Drop what was wrong with an object: it no longer counts."""
        self._flaws.pop(path, None)

    def flawed_paths(self, kind: ObjectKind) -> list[str]:
        """The objects of a kind that have flaws."""
        return [path for path in self._flaws if parse_object_name(path).kind is kind]

    def is_flawed(self, path: str) -> bool:
        """Whether an object has flaws."""
        return path in self._flaws

    def add_epoch_dependency(self, path: str, epoch: Epoch) -> None:
        """Record that restoring an epoch needs an object."""
        with self._lock:
            self._epochs.setdefault(path, set()).add(epoch)

    def add_object_dependency(self, path: str, user: str) -> None:
        """Record that every epoch that needs the object `user` needs this one."""
        with self._lock:
            self._users.setdefault(path, set()).add(user)

    def referenced_paths(self) -> frozenset[str]:
        """All objects that something refers to."""
        return frozenset((*self._epochs, *self._users))

    def epochs_of(self, path: str) -> frozenset[Epoch]:
        """The epochs that cannot be restored without an object."""
        direct = self._epochs.get(path, set())
        return frozenset(direct.union(*(self._epochs.get(user, ()) for user in self._users.get(path, ()))))

    def read_verified(self, ref: ObjectRef) -> bytes | None:
        """The bytes of a referenced object; None, with a flaw recorded, if the reference differs."""
        try:
            data = self.objects.store.get(self.objects.store_path(ref.path)).data
        except NotFoundError:
            self.add_flaw(ref.path, Flaw(Problem.MISSING, expected=f"{ref.size_bytes} bytes"))
            return None
        self.count_read(ref.path, len(data))
        flaw = _flaw_of_bytes(data, ref)
        if flaw is not None:
            self.add_flaw(ref.path, flaw)
            return None
        return data

    def try_read(self, path: str, act: Callable[[], T], consequence: str = "") -> T | None:
        """What `act` returns; None, with a flaw recorded, if the object cannot be read."""
        try:
            return act()
        except STATE_ERRORS as error:
            self.add_flaw(path, replace(flaw_of(error), consequence=consequence))
            return None

    def findings(self, retained: Collection[Epoch]) -> Iterable[Finding]:
        """What is wrong, in order of path."""
        for path, flaws in sorted(self._flaws.items()):
            kind = parse_object_name(path).kind
            epochs = tuple(sorted(epoch for epoch in self.epochs_of(path) if epoch in retained))
            for flaw in flaws:
                yield Finding(
                    object_name=self.objects.url_of(path),
                    kind=kind.value,
                    problem=flaw.problem,
                    found=flaw.found,
                    expected=flaw.expected,
                    epochs=epochs,
                    consequence=flaw.consequence,
                )

    def drop_flaws_of_collected(self, retained: Collection[Epoch]) -> None:
        """Drop flaws of objects that are needed only by epochs that were collected meanwhile."""
        for path in list(self._flaws):
            epochs = self.epochs_of(path)
            if epochs and epochs.isdisjoint(retained):
                del self._flaws[path]

    def may_hide_references(self) -> bool:
        """Whether an object that may name further objects cannot be read."""
        return any(
            parse_object_name(path).kind in _NAMES_OTHERS
            and any(flaw.problem not in (Problem.CONTRADICTION, Problem.OUTDATED) for flaw in flaws)
            for path, flaws in self._flaws.items()
        )


_NAMES_OTHERS = frozenset(
    (
        ObjectKind.EPOCH_RECORD,
        ObjectKind.MANIFEST,
        ObjectKind.SUBTASK_METADATA,
        ObjectKind.TAG,
        ObjectKind.BOUNDARY,
    )
)


def flaw_of(error: LakestateError) -> Flaw:
    """The flaw that an error of reading shows."""
    detail = error.summary if error.found is None else f"{error.summary} ({error.found})"
    match error:
        case NotFoundError():
            return Flaw(Problem.MISSING)
        case ContradictionError():
            return Flaw(Problem.CONTRADICTION, detail, error.expected or "")
        case IncompatibleStateError():
            return Flaw(Problem.NEWER_FORMAT, detail, error.expected or "")
        case MisplacedObjectError():
            return Flaw(Problem.MISPLACED, detail, error.expected or "")
        case _:
            return Flaw(Problem.UNREADABLE, detail, error.expected or "")


def _flaw_of_bytes(data: bytes, ref: ObjectRef) -> Flaw | None:
    if len(data) != ref.size_bytes:
        return Flaw(Problem.SIZE, f"{len(data)} bytes", f"{ref.size_bytes} bytes")
    checksum = xxhash.xxh3_64_intdigest(data)
    if checksum != ref.checksum:
        return Flaw(Problem.CHECKSUM, f"xxh3 {checksum:016x}", f"xxh3 {ref.checksum:016x}")
    return None
