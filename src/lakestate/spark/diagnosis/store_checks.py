"""Trying everything that a job does with its store, on scratch objects that are deleted again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from lakestate.ambient import Ambient
from lakestate.errors import LakestateError, NotFoundError
from lakestate.storage.store import AlreadyExists, Created, ObjectStore, SwapConflict, Swapped

CLOCK_SKEW_MAX_MS = 60_000
"""Clocks that differ by more are told: `clock_tolerance` of a pipeline is an hour."""


class Verdict(Enum):
    """How a check ended."""

    OK = "ok"
    ABSENT = "absent"
    """Something optional is not there."""
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result."""

    name: str
    verdict: Verdict
    detail: str = ""


class _UnexpectedAnswerError(Exception):
    """The store answered, and not as a job needs it."""


def look_at_store(store: ObjectStore) -> list[Check]:
    """List the store, and change nothing."""
    return [_try("store: list", lambda: f"{store.url}: {_first_object(store)}")]


def check_store(store: ObjectStore, ambient: Ambient) -> list[Check]:
    """Try every permission. What one check leaves is deleted, whatever the others say."""
    trial = _Trial(store, f"lakestate-doctor-{ambient.new_id()}", ambient)
    try:
        return [*look_at_store(store), *trial.checks()]
    finally:
        trial.clean_up()


def _first_object(store: ObjectStore) -> str:
    return next((f"{info.path} is the first object" for info in store.list()), "there is nothing yet")


def _try(name: str, attempt: Callable[[], str]) -> Check:
    try:
        return Check(name, Verdict.OK, attempt())
    except (LakestateError, _UnexpectedAnswerError) as error:
        return Check(name, Verdict.FAILED, str(error))


class _Trial:
    """One folder of scratch objects."""

    def __init__(self, store: ObjectStore, folder: str, ambient: Ambient) -> None:
        self._store = store
        self._ambient = ambient
        self._plain = f"{folder}/plain"
        self._created = f"{folder}/created"
        self._swapped = f"{folder}/swapped"
        self._copy = f"{folder}/copy"
        self._upload = f"{folder}/upload"
        self._folder = f"{folder}/"

    def checks(self) -> list[Check]:
        steps = {
            "create": self._put,
            "read": self._read,
            "create if absent": self._create_if_absent,
            "compare and swap": self._compare_and_swap,
            "copy": self._copy_object,
            "multipart upload": self._multipart,
            "list after write": self._list,
            "clock": self._clock,
            "delete": self._delete,
        }
        return [_try(f"store: {name}", step) for name, step in steps.items()]

    def clean_up(self) -> None:
        """Delete what is left. A store that does not allow it has said so in its check."""
        try:
            self._store.delete_many([info.path for info in self._store.list(self._folder)])
            for dangling in self._store.uploads.list_dangling(self._folder):
                self._store.uploads.abort(dangling.upload)
        except LakestateError:
            return

    def _put(self) -> str:
        self._store.put(self._plain, b"lakestate")
        return ""

    def _read(self) -> str:
        _require(self._store.get(self._plain).data == b"lakestate", "other bytes than were written")
        return ""

    def _create_if_absent(self) -> str:
        first = self._store.create(self._created, b"first")
        second = self._store.create(self._created, b"second")
        _require(isinstance(first, Created), "an object that does not exist could not be created")
        _require(isinstance(second, AlreadyExists), "an object was created twice: two drivers could publish")
        return ""

    def _compare_and_swap(self) -> str:
        before = self._store.create(self._swapped, b"1")
        _require(isinstance(before, Created), "an object that does not exist could not be created")
        assert isinstance(before, Created)
        good = self._store.compare_and_swap(self._swapped, b"2", before.version)
        stale = self._store.compare_and_swap(self._swapped, b"3", before.version)
        _require(isinstance(good, Swapped), "an object could not be replaced by its version")
        _require(isinstance(stale, SwapConflict), "an old version was accepted: a fence would not hold")
        return ""

    def _copy_object(self) -> str:
        self._store.copy(self._plain, self._copy)
        _require(self._store.get(self._copy).data == b"lakestate", "the copy has other bytes")
        return ""

    def _multipart(self) -> str:
        uploads = self._store.uploads
        upload = uploads.start(self._upload)
        part = uploads.put_part(upload, 1, b"part")
        _require([each.number for each in uploads.list_parts(upload)] == [1], "parts cannot be listed")
        uploads.complete(upload, [part])
        _require(self._store.get(self._upload).data == b"part", "the upload has other bytes")
        other = uploads.start(self._upload + "-aborted")
        uploads.abort(other)
        return ""

    def _list(self) -> str:
        found = {info.path for info in self._store.list(self._folder)}
        _require(self._plain in found, "an object that was written is not listed")
        return ""

    def _clock(self) -> str:
        before_ms = self._ambient.now_ms()
        self._store.put(self._plain, b"lakestate")
        stored_ms = self._store.head(self._plain).modified_ms
        after_ms = self._ambient.now_ms()
        # Stores say whole seconds, cut off.
        behind_ms, ahead_ms = before_ms - 1000 - stored_ms, stored_ms - after_ms
        skew_ms = max(behind_ms, ahead_ms, 0)
        _require(skew_ms <= CLOCK_SKEW_MAX_MS, f"the store's clock differs by {skew_ms / 1000:.0f} seconds")
        return f"differs by less than {max(1, -(-skew_ms // 1000))} s"

    def _delete(self) -> str:
        self._store.delete_many([self._plain])
        try:
            self._store.head(self._plain)
        except NotFoundError:
            return ""
        raise _UnexpectedAnswerError("a deleted object is still there")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _UnexpectedAnswerError(otherwise)
