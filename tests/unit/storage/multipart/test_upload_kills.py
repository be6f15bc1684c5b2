"""A kill between any two steps of completing or aborting an upload, and the same done again."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.storage import ObjectStore, UploadedPart, UploadId, open_store
from lakestate.storage.parallel import run_sequentially
from lakestate.storage.remote.client import RemoteClient
from lakestate.storage.remote.store import ObstoreStore

PATH = "out/part-0.parquet"
PIECES = (b"first part", b"second", b"third part")
WHOLE = b"".join(PIECES)

Step = Callable[[ObjectStore, UploadId, Sequence[UploadedPart]], object]


class Killed(BaseException):
    """The process is gone."""


class MortalClient(RemoteClient):
    """Dies before its n-th request. Deleting several objects is several requests."""

    requests_left = 10**9

    def _request(self) -> None:
        if self.requests_left == 0:
            raise Killed
        self.requests_left -= 1

    def put(self, *args):  # type: ignore[no-untyped-def]
        self._request()
        return super().put(*args)

    def get(self, *args):  # type: ignore[no-untyped-def]
        self._request()
        return super().get(*args)

    def head(self, *args):  # type: ignore[no-untyped-def]
        self._request()
        return super().head(*args)

    def list(self, *args):  # type: ignore[no-untyped-def]
        self._request()
        return super().list(*args)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._request()
            super().delete([path])


def complete(store: ObjectStore, upload: UploadId, parts: Sequence[UploadedPart]) -> object:
    return store.uploads.complete(upload, parts)


def abort(store: ObjectStore, upload: UploadId, parts: Sequence[UploadedPart]) -> object:
    return store.uploads.abort(upload)


def started(store: ObjectStore) -> tuple[UploadId, list[UploadedPart]]:
    upload = store.uploads.start(PATH)
    return upload, [store.uploads.put_part(upload, number, data) for number, data in enumerate(PIECES, 1)]


def mortal(url: str, requests: int, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    with monkeypatch.context() as patch:
        patch.setattr("lakestate.storage.remote.store.RemoteClient", MortalClient)
        store = open_store(url)
        assert isinstance(store, ObstoreStore)
        client = store._client
        assert isinstance(client, MortalClient)
        client.requests_left = requests
        return store


def killed_in(step: Step, after: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    """Do the step twice, the first time with a kill; whether it struck."""
    url = f"memory://{uuid.uuid4().hex}"
    upload, parts = started(open_store(url))
    struck = False
    with run_sequentially():
        try:
            step(mortal(url, after, monkeypatch), upload, parts)
        except Killed:
            struck = True
        step(open_store(url), upload, parts)
    return url, struck


@pytest.mark.parametrize(("step", "left"), [(complete, [WHOLE]), (abort, [])])
def test_part_objects_survive_a_kill_between_any_two_requests(
    step: Step, left: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    struck, kills = True, -1
    while struck:
        kills += 1
        url, struck = killed_in(step, kills, monkeypatch)
        store = open_store(url)
        assert [store.get(info.path).data for info in store.list()] == left
        assert list(store.uploads.list_dangling()) == []
        assert store._client.list("") == [*store.list()]  # type: ignore[attr-defined]
    assert kills > len(PIECES)


@pytest.mark.parametrize("there", [b"another object", WHOLE[::-1]])
def test_an_object_that_is_not_made_of_the_parts_does_not_stand_for_a_missing_part(there: bytes) -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    upload = store.uploads.start(PATH)
    first = store.uploads.put_part(upload, 1, WHOLE[:10])
    never = UploadedPart(2, len(WHOLE) - 10, "0123456789abcdef")
    store.put(PATH, there)
    with pytest.raises(InvalidInputError, match="part 2 of the upload is missing"):
        store.uploads.complete(upload, [first, never])
    assert store.get(PATH).data == there


def killed_process(step: Callable[[], object], after: int) -> bool:
    """Do the step in a process that is gone after some of its calls to the system; whether it was."""
    child = os.fork()
    if child == 0:
        left = [after]

        def hook(event: str, _: object) -> None:
            if event == "open" or event.startswith(("os.", "shutil.", "fcntl.")):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)

        try:
            sys.addaudithook(hook)
            step()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


# From Python 3.12 on, forking warns if other tests have left threads.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("step", "left"), [(complete, [WHOLE]), (abort, [])])
def test_local_files_survive_a_kill_between_any_two_calls_to_the_system(
    step: Step, left: list[bytes], tmp_path: Path
) -> None:
    struck, kills = True, -1
    while struck:
        kills += 1
        store = open_store((tmp_path / str(kills)).as_uri())
        upload, parts = started(store)
        struck = killed_process(lambda: step(store, upload, parts), kills)  # noqa: B023 - called at once
        step(store, upload, parts)
        assert [store.get(info.path).data for info in store.list()] == left
        assert list(store.uploads.list_dangling()) == []
    assert kills > len(PIECES)


@pytest.mark.parametrize(("step", "left"), [(complete, [PATH]), (abort, [])])
def test_a_part_that_comes_after_the_end_of_its_upload_leaves_nothing(
    step: Step, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    store, sleeper = open_store(url), open_store(url)
    assert isinstance(sleeper, ObstoreStore)
    upload, parts = started(store)
    put = sleeper._client.put

    def put_late(*args):  # type: ignore[no-untyped-def]
        step(store, upload, parts)
        return put(*args)

    monkeypatch.setattr(sleeper._client, "put", put_late)
    with pytest.raises(NotFoundError, match="no such upload"):
        sleeper.uploads.put_part(upload, len(parts) + 1, b"late")
    assert [info.path for info in sleeper._client.list("")] == left
