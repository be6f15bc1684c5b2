"""Many threads or processes that try the same conditional write at the same moment."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakestate.storage import AlreadyExists, Created, ObjectStore, SwapConflict, Swapped, open_store

if TYPE_CHECKING:
    from lakestate.config import StoreConfig

PATIENCE_S = 240


@dataclass(frozen=True, slots=True)
class Answer:
    """What one contender was told: whether it won, and whose bytes are there."""

    contender: str
    won: bool
    holder: str


@dataclass(frozen=True, slots=True)
class Race:
    """What is raced for: to swap the paths below `swap/`, to create the others.

    `lanes` rounds run at a time, each for a path of its own.
    """

    paths: list[str]
    lanes: int = 1


def race_threads(store: ObjectStore, race: Race, threads: int) -> list[list[Answer]]:
    """The answers of all threads, round by round."""
    barriers = [threading.Barrier(threads) for _ in range(race.lanes)]
    with ThreadPoolExecutor(threads) as pool:
        contenders = [
            pool.submit(_contend, store, race, f"thread-{number}", barriers) for number in range(threads)
        ]
        return _by_round([contender.result(PATIENCE_S) for contender in contenders])


def race_processes(config: StoreConfig, race: Race, processes: int) -> list[list[Answer]]:
    """The answers of all processes, round by round. Spawned: obstore does not survive a fork."""
    spawn = multiprocessing.get_context("spawn")
    barriers = [spawn.Barrier(processes) for _ in range(race.lanes)]
    answers = spawn.SimpleQueue()
    contenders = [
        spawn.Process(target=_process, args=(config, race, f"process-{number}", barriers, answers))
        for number in range(processes)
    ]
    for contender in contenders:
        contender.start()
    collected = [answers.get() for _ in contenders]
    for contender in contenders:
        contender.join(PATIENCE_S)
        contender.close()
    failed = [answer for answer in collected if isinstance(answer, str)]
    assert not failed, failed
    return _by_round(collected)


def _process(config: StoreConfig, race: Race, me: str, barriers: list[Any], answers: Any) -> None:
    try:
        answers.put(_contend(open_store(config), race, me, barriers))
    except BaseException as error:
        for barrier in barriers:
            barrier.abort()
        answers.put(repr(error))


def _contend(store: ObjectStore, race: Race, me: str, barriers: list[Any]) -> list[Answer]:
    def lane(number: int) -> list[Answer]:
        paths = race.paths[number :: race.lanes]
        return [_attempt(store, path, me, barriers[number]) for path in paths]

    with ThreadPoolExecutor(race.lanes) as pool:
        by_lane = list(pool.map(lane, range(race.lanes)))
    return [by_lane[index % race.lanes][index // race.lanes] for index in range(len(race.paths))]


def _attempt(store: ObjectStore, path: str, me: str, barrier: Any) -> Answer:
    version = store.head(path).version if path.startswith("swap/") else None
    barrier.wait(PATIENCE_S)
    if version is None:
        return _answer(me, store.create(path, me.encode()))
    return _answer(me, store.compare_and_swap(path, me.encode(), version))


def _answer(me: str, outcome: object) -> Answer:
    match outcome:
        case Created() | Swapped():
            return Answer(me, True, me)
        case AlreadyExists(existing) | SwapConflict(existing) if existing is not None:
            return Answer(me, False, existing.data.decode())
    raise AssertionError(outcome)


def _by_round(by_contender: list[list[Answer]]) -> list[list[Answer]]:
    return [list(answers) for answers in zip(*by_contender, strict=True)]
