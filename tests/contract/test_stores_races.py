"""Exactly one of many callers wins a conditional write, on every store.

Memory lives in one process, so there only threads can race. SeaweedFS makes contended conditional
writes wait a second at a time for its lock, so there the rounds are few and run side by side.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.support.storage.racing import Answer, Race, race_processes, race_threads

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.storage import ObjectStore, Swapped, open_store

if TYPE_CHECKING:
    from pathlib import Path

THREADS = 32
PROCESSES = 8
ROUNDS = {"memory": 60, "local": 60, "s3": 3}
LANES = {"memory": 1, "local": 1, "s3": 6}
PATIENT = RetryPolicy(deadline_ms=240_000, attempt_timeout_ms=240_000)
"""One that gives up its turn at a busy server could not say who has won."""


@pytest.fixture(params=["memory", "local", "s3"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def config(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> StoreConfig:
    if name == "memory":
        return StoreConfig(f"memory://{uuid.uuid4().hex}")
    if name == "local":
        return StoreConfig(tmp_path.as_uri())
    found = request.getfixturevalue("s3_config")
    assert isinstance(found, StoreConfig)
    return StoreConfig(found.url, found.options, PATIENT)


def test_exactly_one_thread_wins(config: StoreConfig, name: str) -> None:
    store = open_store(config)
    paths = prepared(store, ROUNDS[name])
    check(store, paths, race_threads(store, Race(paths, LANES[name]), THREADS))


@pytest.mark.parametrize("name", ["local", "s3"], indirect=True)
def test_exactly_one_process_wins(config: StoreConfig, name: str) -> None:
    store = open_store(config)
    paths = prepared(store, ROUNDS[name])
    check(store, paths, race_processes(config, Race(paths, LANES[name]), PROCESSES))


@pytest.mark.parametrize("name", ["memory", "local"], indirect=True)
def test_no_increment_is_lost(config: StoreConfig) -> None:
    store = open_store(config)
    store.put("counter", b"0")

    def increment(times: int) -> int:
        while times:
            stored = store.get("counter")
            following = str(int(stored.data) + 1).encode()
            times -= isinstance(store.compare_and_swap("counter", following, stored.version), Swapped)
        return times

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(increment, [25] * 8))
    assert store.get("counter").data == b"200"


@pytest.mark.parametrize("name", ["local"], indirect=True)
def test_puts_survive_deletes_that_empty_their_folder(config: StoreConfig) -> None:
    store = open_store(config)
    done = threading.Event()

    def empty_the_folder() -> None:
        while not done.is_set():
            store.put("deep/folder/other", b"")
            store.delete_many(["deep/folder/other"])

    with ThreadPoolExecutor(2) as pool:
        deletes = pool.submit(empty_the_folder)
        try:
            for number in range(150):
                store.put("deep/folder/object", str(number).encode())
                assert store.get("deep/folder/object").data == str(number).encode()
                store.delete_many(["deep/folder/object"])
        finally:
            done.set()
        deletes.result(60)
    assert list(store.list()) == []


def prepared(store: ObjectStore, rounds: int) -> list[str]:
    swapped = [f"swap/{number:03d}" for number in range(rounds)]
    for path in swapped:
        store.put(path, b"start")
    return [*swapped, *(f"create/{number:03d}" for number in range(rounds))]


def check(store: ObjectStore, paths: list[str], rounds: list[list[Answer]]) -> None:
    for path, answers in zip(paths, rounds, strict=True):
        winners = [answer.contender for answer in answers if answer.won]
        assert winners == [store.get(path).data.decode()]
        assert {answer.holder for answer in answers} == set(winners)
