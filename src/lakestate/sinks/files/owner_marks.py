"""The marks of owners in an output: empty files or objects, whose names say who the owner is.

An owner looks for marks of others, leaves its own, and looks again. Of two that do so at the same moment
at least one sees the other, so at most one goes on. A mark is never removed, except by a job that is told
to take over the output. Starting costs one listing, and for the first time a put and another listing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.output_owner import (
    OutputClaim,
    OutputOwner,
    foreign_output_error,
    other_owners,
    simultaneous_claim_error,
)
from lakestate.storage.local.errors import translate_read_errors, translate_write_errors
from lakestate.storage.local.file_tree import FileTree, fsync_folder
from lakestate.storage.object_path import RESERVED, require_path
from lakestate.storage.store import ObjectStore

OWNERS_FOLDER = "_lakestate/owners"
LOCAL_OWNERS_FOLDER = f"{RESERVED}/owners"

_log = logging.getLogger("lakestate.sinks")


class OwnerMarks(Protocol):
    """The marks in one output."""

    @property
    def output(self) -> str:
        """The output, for messages."""
        ...

    def of_fingerprint(self, fingerprint: str) -> list[str]:
        """All marks of a fingerprint."""
        ...

    def leave(self, mark: str) -> None:
        """Create a mark. It is durable when this returns; creating it again changes nothing."""
        ...

    def remove(self, marks: Iterable[str]) -> None:
        """Remove marks. Removing one that is gone succeeds."""
        ...


def owner_marks(output: ObjectStore | LocalOutput) -> OwnerMarks:
    """The marks in an output of a file sink."""
    return _LocalMarks(output.root) if isinstance(output, LocalOutput) else _StoreMarks(output)


def claim_output(marks: OwnerMarks, owner: OutputOwner, claim: OutputClaim) -> None:
    """Own the output, or refuse because another job does."""
    found = marks.of_fingerprint(owner.fingerprint)
    others = other_owners(owner, found)
    if claim is OutputClaim.TAKE_OVER:
        _take_over(marks, owner, others)
        return
    if not others and owner.mark not in found and claim is OutputClaim.OWN:
        marks.leave(owner.mark)
        others = other_owners(owner, marks.of_fingerprint(owner.fingerprint))
    if others:
        raise foreign_output_error(owner, marks.output, others)


def _take_over(marks: OwnerMarks, owner: OutputOwner, others: Collection[str]) -> None:
    # Before the others' are removed: a crash in between must not leave the output without an owner.
    marks.leave(owner.mark)
    marks.remove(others)
    left = marks.of_fingerprint(owner.fingerprint)
    if left != [owner.mark]:
        raise simultaneous_claim_error(owner, marks.output, other_owners(owner, left))
    for mark in others:
        _log.warning("%s is taken over from %s", marks.output, OutputOwner.of_mark(mark))


class _StoreMarks:
    """Marks as objects."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def output(self) -> str:
        return self._store.url

    def of_fingerprint(self, fingerprint: str) -> list[str]:
        found = self._store.list(f"{OWNERS_FOLDER}/{fingerprint}/")
        return sorted(info.path.removeprefix(f"{OWNERS_FOLDER}/") for info in found)

    def leave(self, mark: str) -> None:
        self._store.put(f"{OWNERS_FOLDER}/{mark}", b"")

    def remove(self, marks: Iterable[str]) -> None:
        self._store.delete_many([f"{OWNERS_FOLDER}/{mark}" for mark in marks])


class _LocalMarks:
    """Marks as files."""

    def __init__(self, root: Path) -> None:
        self._tree = FileTree(root)
        self._folder = self._tree.root / LOCAL_OWNERS_FOLDER

    @property
    def output(self) -> str:
        return str(self._tree.root)

    def of_fingerprint(self, fingerprint: str) -> list[str]:
        folder = self._folder / fingerprint
        with translate_read_errors(str(folder)):
            return sorted(str(path.relative_to(self._folder)) for path in folder.rglob("*") if path.is_file())

    def leave(self, mark: str) -> None:
        path = self._path(mark)
        with translate_write_errors(str(path)):
            self._tree.ensure_folder(path.parent)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))
            fsync_folder(path.parent)

    def remove(self, marks: Iterable[str]) -> None:
        for path in map(self._path, marks):
            with translate_write_errors(str(path)):
                path.unlink(missing_ok=True)
                fsync_folder(path.parent)

    def _path(self, mark: str) -> Path:
        return self._folder / require_path(mark)
