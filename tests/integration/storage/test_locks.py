"""A process that is stopped while it holds a lock: who is held up by it, for how long, and what they hear."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakestate.errors import StorageUnavailableError
from lakestate.storage import open_store
from lakestate.storage.cache.entry import EntryFiles, entry_name
from lakestate.storage.cache.run_cache import RunCache
from lakestate.storage.local import file_lock, file_tree
from lakestate.storage.store import Created

STORE_LOCK = """
import os, signal, sys
from pathlib import Path
from lakestate.storage.local.file_tree import FileTree
with FileTree(Path(sys.argv[1])).lock(sys.argv[2]):
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""

CACHE_LOCK = """
import os, signal, sys
from lakestate.storage.cache.entry import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def stopped_holder(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has taken a lock and was stopped then."""
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, and wait for its end: until then it has its locks."""
    process.kill()
    process.wait()


@pytest.fixture
def holders() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "STOPPED_WAIT_S", 0.1)


def test_new_objects_are_written_while_a_stopped_process_holds_their_lock(
    tmp_path: Path, holders: list[subprocess.Popen[str]]
) -> None:
    store = open_store(tmp_path.as_uri())
    holders.append(stopped_holder(STORE_LOCK, str(tmp_path), "epochs/2"))
    assert isinstance(store.create("epochs/2", b"created"), Created)
    # Paths share a few locks; one with the same lock must not be held up either.
    for number in range(3 * file_tree.LOCK_STRIPES):
        store.put(f"files/{number}", b"put")
    assert store.get("epochs/2").data == b"created"


def test_a_change_that_needs_the_lock_of_a_stopped_process_names_it_and_works_once_it_is_gone(
    tmp_path: Path, holders: list[subprocess.Popen[str]]
) -> None:
    store = open_store(tmp_path.as_uri())
    before = store.put("generation.json", b"1")
    holders.append(stopped_holder(STORE_LOCK, str(tmp_path), "generation.json"))
    with pytest.raises(StorageUnavailableError) as raised:
        store.compare_and_swap("generation.json", b"2", before.version)
    assert f"found process {holders[0].pid}, which is stopped; let it continue" in str(raised.value)
    assert store.get("generation.json").data == b"1"
    end(holders[0])
    store.compare_and_swap("generation.json", b"2", before.version)
    assert store.get("generation.json").data == b"2"


def test_a_lock_that_a_running_process_never_lets_go_of_is_waited_for_only_so_long(
    tmp_path: Path, holders: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tree, "LOCK_WAIT_S", 0.2)
    store = open_store(tmp_path.as_uri())
    store.put("object", b"1")
    idle = STORE_LOCK.replace("os.kill(os.getpid(), signal.SIGSTOP)", "signal.pause()")
    process = subprocess.Popen(
        [sys.executable, "-c", idle, str(tmp_path), "object"], stdout=subprocess.PIPE, text=True
    )
    holders.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(StorageUnavailableError, match=rf"found process {process.pid}; let it continue"):
        store.delete_many(["object"])
    end(process)
    store.delete_many(["object"])
    assert list(store.list()) == []


def test_a_cache_entry_whose_builder_is_stopped_is_not_waited_for_in_silence(
    tmp_path: Path, holders: list[subprocess.Popen[str]]
) -> None:
    cache = RunCache(tmp_path, bytes_max=1_000_000)
    lock = EntryFiles.of(str(tmp_path), entry_name("runs/a.parquet")).lock
    holders.append(stopped_holder(CACHE_LOCK, lock))
    with pytest.raises(StorageUnavailableError, match=rf"process {holders[0].pid}, which is stopped"):
        cache.open("runs/a.parquet", lambda path: path.write_bytes(b"content"))
    end(holders[0])
    with cache.open("runs/a.parquet", lambda path: path.write_bytes(b"content")) as file:
        assert file.memory_map().read() == b"content"
