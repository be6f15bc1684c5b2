"""What other processes leave behind when they are killed, or hand over when they end."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from tests.support.storage import put_forever, upload_step

from lakestate.config import StoreConfig
from lakestate.storage import ObjectStore, UploadId, open_store
from lakestate.storage.local.file_tree import sweep_temporary

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 20_260
LOCAL_KILLS = 60
S3_KILLS = 12


@pytest.fixture(params=["local", "s3"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> StoreConfig:
    if request.param == "local":
        return StoreConfig(tmp_path.as_uri())
    found = request.getfixturevalue("s3_config")
    assert isinstance(found, StoreConfig)
    return found


def test_a_process_killed_in_a_put_leaves_a_whole_object(config: StoreConfig) -> None:
    store = open_store(config)
    moments = random.Random(SEED)
    kills = LOCAL_KILLS if config.url.startswith("file") else S3_KILLS
    store.put(put_forever.PATH, put_forever.CONTENTS[0])
    found: list[bytes] = []
    both = {data[:1] for data in put_forever.CONTENTS}
    with victims(config) as children:
        # Where children go on while this process has to wait, both are found only after some more.
        while len(found) < kills or (set(found) != both and len(found) < 10 * kills):
            children.kill_one(moments)
            data = store.get(put_forever.PATH).data
            assert data in put_forever.CONTENTS, (
                f"partial after kill {len(found)} of seed {SEED}: {len(data)} bytes"
            )
            found.append(data[:1])
    assert [info.path for info in store.list()] == [put_forever.PATH]
    # Both contents were found, so the children did write and the kills were spread out.
    assert set(found) == both


def test_what_killed_processes_left_is_swept(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path.as_uri())
    leftovers = tmp_path / ".lakestate" / "tmp"
    moments = random.Random(SEED)
    store = open_store(config)
    store.put("object", b"data")
    with victims(config) as children:
        for _ in range(100):
            children.kill_one(moments)
            if list(leftovers.iterdir()):
                break
        else:
            pytest.fail("no kill struck while a temporary file was there")
    sweep_temporary(leftovers, older_than_s=-1)
    assert list(leftovers.iterdir()) == []
    assert store.get("object").data == b"data"


def test_an_upload_is_handed_from_process_to_process(config: StoreConfig) -> None:
    upload = in_another_process(config, None, "start")
    store = open_store(config)
    assert [dangling.upload for dangling in store.uploads.list_dangling()] == [upload]
    assert in_another_process(config, upload, "continue") == upload
    assert list(store.list()) == []
    in_another_process(config, upload, "complete")
    expected = upload_step.part(store, 1) + upload_step.part(store, 2)
    assert store.get(upload_step.PATH).data == expected
    assert list(store.uploads.list_dangling()) == []


def test_the_store_does_not_need_its_server_to_be_opened_or_pickled() -> None:
    store: ObjectStore = open_store("s3://bucket/prefix", {"endpoint": "http://127.0.0.1:9", "region": "x"})
    assert pickle.loads(pickle.dumps(store)).url == "s3://bucket/prefix"


class Victims:
    """Children that put forever, one at a time, until they are killed."""

    def __init__(self, parent: subprocess.Popen[bytes]) -> None:
        assert parent.stdin is not None
        assert parent.stdout is not None
        self._orders, self._reports = parent.stdin, parent.stdout
        self._put_s = 0.02

    def kill_one(self, moments: random.Random) -> None:
        """Kill a child at a random moment of its first, second or third put."""
        child = self._start()
        for _ in range(moments.randrange(3)):
            began_s = time.monotonic()
            assert self._reports.readline() == put_forever.DONE
            self._put_s = time.monotonic() - began_s
        Event().wait(moments.uniform(0, self._put_s))
        os.kill(child, signal.SIGKILL)

    def _start(self) -> int:
        self._orders.write(b"\n")
        self._orders.flush()
        while (report := self._reports.readline()) == put_forever.DONE:
            """The last child finished a put before it was killed."""
        return int(report)


@contextmanager
def victims(config: StoreConfig) -> Iterator[Victims]:
    program = [sys.executable, put_forever.__file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, env=environment()) as parent:
        assert parent.stdin is not None
        parent.stdin.write(pickle.dumps(config).hex().encode() + b"\n")
        yield Victims(parent)
        parent.stdin.close()


def in_another_process(config: StoreConfig, upload: UploadId | None, step: str) -> UploadId:
    done = subprocess.run(
        [sys.executable, upload_step.__file__],
        input=pickle.dumps((config, upload, step)).hex(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment(),
        timeout=60,
    )
    found = pickle.loads(bytes.fromhex(done.stdout))
    assert isinstance(found, UploadId)
    return found


def environment() -> dict[str, str]:
    source = Path(sys.modules["lakestate.storage"].__file__ or "").parents[2]
    return {**os.environ, "PYTHONPATH": str(source)}
