"""The run cache between processes: built once, bounded, never a torn file, no matter which is killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

from lakestate.storage.cache.run_cache import RunCache

SPAWN = multiprocessing.get_context("spawn")
DEADLINE_S = 240


def expected(key: str) -> bytes:
    return key.encode() * (200 + 100 * (len(key) % 3))


def logged_build(key: str, log: Path) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        with log.open("a") as file:
            file.write(key + "\n")
        path.write_bytes(expected(key))

    return build


def open_at_once(directory: Path, log: Path, start: Barrier, key: str) -> None:
    cache = RunCache(directory, 1_000_000)
    start.wait(DEADLINE_S)
    with cache.open(key, logged_build(key, log)) as file:
        assert file.memory_map().read() == expected(key)


def open_many(directory: Path, log: Path, seed: int, bytes_max: int) -> None:
    choose = random.Random(seed)
    cache = RunCache(directory, bytes_max)
    held = {}
    for _ in range(400):
        key = f"run {choose.randrange(40)}"
        held[choose.randrange(3)] = (key, cache.open(key, logged_build(key, log)))
        for held_key, file in held.values():
            assert file.memory_map().read() == expected(held_key)


def stall_in_build(directory: Path, key: str, stalled: Event) -> None:
    def build(path: Path) -> None:
        path.write_bytes(b"half")
        stalled.set()
        time.sleep(DEADLINE_S)

    RunCache(directory, 1_000_000).open(key, build)


def hold_open(directory: Path, key: str, opened: Event, finish: Event) -> None:
    with RunCache(directory, 1_000_000).open(key, logged_build(key, Path(os.devnull))) as file:
        opened.set()
        finish.wait(DEADLINE_S)
        assert file.memory_map().read() == expected(key)


def run_all(target: Callable[..., None], arguments: list[tuple[object, ...]]) -> None:
    processes = [SPAWN.Process(target=target, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_processes_that_want_the_same_run_build_it_once(tmp_path: Path) -> None:
    log, start = tmp_path / "log", SPAWN.Barrier(4)
    run_all(open_at_once, [(tmp_path / "cache", log, start, "wanted")] * 4)
    assert log.read_text() == "wanted\n"


def test_processes_that_insert_and_evict_at_once_see_only_whole_files_within_the_bound(
    tmp_path: Path,
) -> None:
    directory, bytes_max = tmp_path / "cache", 30_000
    run_all(open_many, [(directory, tmp_path / "log", seed, bytes_max) for seed in range(4)])
    cache = RunCache(directory, bytes_max)
    cache.open("one more", lambda path: None).close()
    assert cache.stats().size_bytes <= bytes_max
    assert list(directory.glob("*.tmp")) == []


def test_a_process_killed_in_the_middle_of_a_build_blocks_nobody_and_leaves_nothing(tmp_path: Path) -> None:
    directory, stalled = tmp_path / "cache", SPAWN.Event()
    process = SPAWN.Process(target=stall_in_build, args=(directory, "wanted", stalled))
    process.start()
    assert stalled.wait(DEADLINE_S)
    process.kill()
    process.join(DEADLINE_S)
    with RunCache(directory, 1_000_000).open("wanted", lambda path: path.write_bytes(b"whole")) as file:
        assert file.memory_map().read() == b"whole"
    assert list(directory.glob("*.tmp")) == []


def test_a_file_in_use_by_another_process_is_not_evicted(tmp_path: Path) -> None:
    directory, opened, finish = tmp_path / "cache", SPAWN.Event(), SPAWN.Event()
    process = SPAWN.Process(target=hold_open, args=(directory, "held", opened, finish))
    process.start()
    assert opened.wait(DEADLINE_S)
    [held] = directory.glob("*.run")
    cache = RunCache(directory, 1)
    for number in range(3):
        cache.open(f"other {number}", lambda path: path.write_bytes(b"x")).close()
    assert held.exists()
    finish.set()
    process.join(DEADLINE_S)
    cache.open("last", lambda path: path.write_bytes(b"x")).close()
    assert (held.exists(), process.exitcode) == (False, 0)
