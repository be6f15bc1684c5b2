"""The scheduler: threads take turns, one at a time, in an order that a seeded generator decides.

The code under test is synchronous. Each actor has its own thread and may pass on its turn at every
store call. Two actors never run at once, and the clock is a number, so a run depends only on its seed.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from random import Random
from typing import Any

from lakestate.storage.parallel import run_sequentially
from lakestate.testing.faults import SimulatedCrash

START_MS = 1_700_000_000_000


class SimulationOver(BaseException):
    """Unwinds an actor when the simulation has ended. No handler in the code catches it."""


class Actor:
    """One actor. It gets a thread with its first turn."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[], Any]) -> None:
        self.name = name
        self.wake_ms = 0
        self.ready: Callable[[], bool] | None = None
        """If set, the actor also wakes when this returns True, before `wake_ms`."""
        self.is_started = False
        self.done = False
        self.finished_at = 0
        self.fence_known = 0
        """The generation of the fence at this actor's last answer from the store."""
        self.result: Any = None
        self.error: BaseException | None = None
        self._scheduler = scheduler
        self._body = body
        self._turn = _acquired_lock()
        self._end = _acquired_lock()

    def give_turn(self) -> None:
        """Let the actor continue, which waits for its turn."""
        self._turn.release()

    def wait_turn(self) -> None:
        """Wait until it is this actor's turn."""
        self._turn.acquire()
        if self._scheduler.over:
            raise SimulationOver

    def wait_end(self) -> None:
        """Wait until the actor has ended."""
        self._end.acquire()

    def run(self) -> None:
        """Run the whole actor on this thread."""
        try:
            with run_sequentially():
                self.result = self._body()
        except SimulationOver:
            pass
        except (Exception, SimulatedCrash) as error:  # noqa: BLE001 - raised or checked by the actor that waits for it
            self.error = error
        finally:
            self.done = True
            self._end.release()


class Scheduler:
    """Gives turns. `switch_rate` is the probability that a store call lets another actor run first."""

    def __init__(self, random: Random, switch_rate: float) -> None:
        self.now_ms = START_MS
        self.over = False
        self._random = random
        self._switch_rate = switch_rate
        self._is_turn_due = False
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._finished = 0
        self._main = _acquired_lock()

    @property
    def current(self) -> Actor:
        """The actor whose turn it is."""
        if self._current is None:
            raise RuntimeError("no actor is running")
        return self._current

    def spawn(self, name: str, body: Callable[[], Any]) -> Actor:
        """A new actor, which runs when it is chosen."""
        actor = Actor(self, name, body)
        self._actors.append(actor)
        return actor

    def run(self) -> None:
        """Give the first turn, and return when all actors have ended or one of them called `stop`."""
        self._give_turn(self._choose_next())
        self._main.acquire()
        self.over = True
        left = [actor for actor in self._actors if actor.is_started]
        for actor in left:
            actor.give_turn()
        for actor in left:
            actor.wait_end()

    def stop(self) -> None:
        """End everything, from within an actor."""
        self.over = True
        raise SimulationOver

    def pause(self) -> None:
        """Let time pass, and maybe another actor run first. Called at every store call."""
        self.now_ms += 1 + int(self._random.random() * 20)
        if len(self._actors) > 1 and (self._is_turn_due or self._random.random() < self._switch_rate):
            self._is_turn_due = False
            self._yield()

    def interrupt(self) -> None:
        """Make the next store call choose an actor."""
        self._is_turn_due = True

    def sleep(self, duration_ms: int) -> None:
        """Let others run for `duration_ms`."""
        self.current.wake_ms = self.now_ms + duration_ms
        self._yield()

    def wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Let others run until a condition holds or the time is up. Returns whether it holds."""
        if not ready():
            actor = self.current
            actor.wake_ms, actor.ready = self.now_ms + timeout_ms, ready
            self._yield()
            actor.wake_ms, actor.ready = 0, None
        return ready()

    def _yield(self) -> None:
        actor = self.current
        chosen = self._choose_next()
        # Use the local choice: the current actor may have changed by the time this thread looks.
        if chosen is not actor:
            self._give_turn(chosen)
            actor.wait_turn()

    def _choose_next(self) -> Actor | None:
        """Choose the next actor. None at the end."""
        self._current = None if self.over or not self._actors else self._choose()
        return self._current

    def _give_turn(self, chosen: Actor | None) -> None:
        if chosen is None:
            self._main.release()
        elif chosen.is_started:
            chosen.give_turn()
        else:
            chosen.is_started = True
            _thread.start_new_thread(self._work, (chosen,))

    def _work(self, actor: Actor) -> None:
        """Run an actor, then others that have no thread yet, because switching threads is expensive."""
        while True:
            actor.run()
            self._finished += 1
            actor.finished_at = self._finished
            if actor is not self._current:
                return
            self._actors.remove(actor)
            chosen = self._choose_next()
            if chosen is None or chosen.is_started:
                self._give_turn(chosen)
                return
            chosen.is_started = True
            actor = chosen

    def _choose(self) -> Actor:
        able = [actor for actor in self._actors if self._is_able(actor)]
        if not able:
            first = min(self._actors, key=lambda actor: (actor.wake_ms, actor.name))
            self.now_ms = max(self.now_ms, first.wake_ms)
            return first
        return able[int(self._random.random() * len(able))]

    def _is_able(self, actor: Actor) -> bool:
        return actor.wake_ms <= self.now_ms or (actor.ready is not None and actor.ready())


def _acquired_lock() -> _thread.LockType:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock
