"""Who runs next: threads that take turns, one at a time, as a seeded generator decides.

The code under test is synchronous. Each actor has a thread of its own and hands its turn on at every
store call; no two ever run together, and the clock is a number. So a run depends on its seed alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

from lakestate.storage.parallel import one_at_a_time
from lakestate.testing.faults import SimulatedCrash

START_MS = 1_700_000_000_000


class SimulationOver(BaseException):
    """Unwinds an actor when the simulation has ended. No handler in the code survives it."""


class Actor:
    """One thread of control."""

    def __init__(self, name: str, body: Callable[[], Any]) -> None:
        self.name = name
        self.wake_ms = 0
        self.ready: Callable[[], bool] | None = None
        """If there: the actor also wakes when this holds, before `wake_ms`."""
        self.done = False
        self.finished_at = 0
        self.fence_known = 0
        """The generation that the fence had when this actor last heard from the store."""
        self.result: Any = None
        self.error: BaseException | None = None
        self._body = body
        self._turn = threading.Lock()
        self._turn.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.scheduler: Scheduler

    def start(self) -> None:
        """Make the thread; it waits for its first turn."""
        self._thread.start()

    def give_turn(self) -> None:
        """Let the thread go on."""
        self._turn.release()

    def wait_turn(self) -> None:
        """Stop the thread until somebody gives it the turn."""
        self._turn.acquire()
        if self.scheduler.over:
            raise SimulationOver

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self.wait_turn()
            with one_at_a_time():
                self.result = self._body()
        except SimulationOver:
            pass
        except (Exception, SimulatedCrash) as error:  # noqa: BLE001 - whoever waits for the actor judges it
            self.error = error
        finally:
            self.done = True
            self.scheduler.ended(self)


class Scheduler:
    """Gives turns. `switch_rate` is how often a store call lets another actor go first."""

    def __init__(self, random: Random, switch_rate: float) -> None:
        self.now_ms = START_MS
        self.over = False
        self.deadlock: str | None = None
        self._random = random
        self._switch_rate = switch_rate
        self._actors: list[Actor] = []
        self._started: list[Actor] = []
        self._current: Actor | None = None
        self._finished = 0
        self._main = threading.Lock()
        self._main.acquire()

    @property
    def current(self) -> Actor:
        """The actor whose turn it is."""
        assert self._current is not None
        return self._current

    def spawn(self, name: str, body: Callable[[], Any]) -> Actor:
        """A new actor, which runs when it is chosen."""
        actor = Actor(name, body)
        actor.scheduler = self
        self._actors.append(actor)
        self._started.append(actor)
        actor.start()
        return actor

    def run(self) -> None:
        """Give the first turn, and return when all actors have ended or somebody stopped it."""
        self._pass_on(None)
        self._main.acquire()
        self.over = True
        for actor in list(self._actors):
            actor.give_turn()
        for actor in self._started:
            actor.join()

    def stop(self) -> None:
        """End everything, from within an actor."""
        self.over = True
        raise SimulationOver

    def pause(self) -> None:
        """Let time pass and maybe another actor go first. Called at every store call."""
        self.now_ms += 1 + int(self._random.random() * 20)
        if len(self._actors) > 1 and self._random.random() < self._switch_rate:
            self._yield()

    def sleep(self, duration_ms: int) -> None:
        """Let others run for so long."""
        self.current.wake_ms = self.now_ms + duration_ms
        self._yield()

    def wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Let others run until a condition holds, or for so long. Answers whether it holds."""
        if not ready():
            actor = self.current
            actor.wake_ms, actor.ready = self.now_ms + timeout_ms, ready
            self._yield()
            actor.wake_ms, actor.ready = 0, None
        return ready()

    def ended(self, actor: Actor) -> None:
        """An actor's thread ends."""
        self._finished += 1
        actor.finished_at = self._finished
        if actor in self._actors:
            self._actors.remove(actor)
        if actor is self._current:
            self._pass_on(actor)

    def _yield(self) -> None:
        actor = self.current
        # By what was chosen here: the current actor may be another one before this thread looks.
        if self._pass_on(actor) is not actor:
            actor.wait_turn()

    def _pass_on(self, actor: Actor | None) -> Actor | None:
        """Choose who is next, and give the turn unless the chooser keeps it. None at the end."""
        if self.over or not self._actors:
            self._current = None
            self._main.release()
            return None
        chosen = self._chosen()
        self._current = chosen
        if chosen is not actor:
            chosen.give_turn()
        return chosen

    def _chosen(self) -> Actor:
        able = [actor for actor in self._actors if self._is_able(actor)]
        if not able:
            first = min(self._actors, key=lambda actor: (actor.wake_ms, actor.name))
            self.now_ms = max(self.now_ms, first.wake_ms)
            return first
        return able[int(self._random.random() * len(able))]

    def _is_able(self, actor: Actor) -> bool:
        return actor.wake_ms <= self.now_ms or (actor.ready is not None and actor.ready())
