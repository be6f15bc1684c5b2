"""The faults of a simulation: their kinds, their rates, and scripts that repeat them.

Faults are drawn per store call. Each one that strikes is recorded with its actor and the number of
the call, so that a run can be repeated with exactly these faults, or with fewer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from random import Random

from lakestate.errors import InvalidInputError
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.random_streams import random_stream


class FaultKind(Enum):
    """What goes wrong at one store call."""

    CRASH_BEFORE = "the process crashes before the store acts"
    CRASH_AFTER = "the process crashes after the store acted"
    UNAVAILABLE = "429 or 503: the store does not act, and reports it"
    REQUEST_LOST = "the store does not act, and the caller cannot know"
    ANSWER_LOST = "the store acts, and the caller cannot know"
    LATE = "the caller gives up, and the request arrives minutes later"
    TWICE = "the request arrives, and arrives again minutes later"
    STALL = "the process stalls for an hour, and then continues"
    NAP = "the process stalls for a minute"
    EXECUTOR_LOST = "the host fails with all its processes and its run cache"

    def can_strike(self, operation: Operation) -> bool:
        """Whether this fault can strike there. Lost and late requests matter only for writes."""
        return operation.writes or self not in _WRITES_ONLY


@dataclass(frozen=True)
class FaultRates:
    """How often each fault strikes: per store call, or per decision between calls."""

    crash_before: float = 0.0
    crash_after: float = 0.0
    unavailable: float = 0.0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    stall: float = 0.0
    nap: float = 0.0
    executor_lost: float = 0.0
    superseded: float = 0.0
    """Per stage: a completed attempt is run again."""
    second_driver: float = 0.0
    """Per start: the next driver does not wait for this one to end."""

    @staticmethod
    def draw(random: Random) -> FaultRates:
        """Rates for one seed: some kinds are frequent, most rare, some absent."""
        scale = random.choice([0.002, 0.004, 0.008])
        rates = {item.name: scale * random.choice([0, 0.3, 1, 2]) for item in fields(FaultRates)}
        rates["superseded"] = random.choice([0.0, 0.05, 0.2])
        rates["second_driver"] = random.choice([0.0, 0.3, 0.7])
        return FaultRates(**rates)


@dataclass(frozen=True, order=True)
class CallId:
    """A store call: the actor, and the number of its call, counted from 1."""

    actor: str
    number: int

    def __str__(self) -> str:
        return f"{self.actor}:{self.number}"


Script = Mapping[CallId, FaultKind]
_DRAWN = tuple(FaultKind)
_FAULT = re.compile(r"(?P<actor>[^:=]+):(?P<number>[1-9][0-9]*)=(?P<kind>[a-z_]+)", re.IGNORECASE | re.ASCII)
_WRITES_ONLY = frozenset((FaultKind.REQUEST_LOST, FaultKind.ANSWER_LOST, FaultKind.LATE, FaultKind.TWICE))


class FaultPlan:
    """Decides at every call, at random or by script, and records what it decided."""

    def __init__(self, seed: int, rates: FaultRates, script: Script | None = None) -> None:
        self.rates = rates
        self.struck: dict[CallId, FaultKind] = {}
        self.calls: dict[CallId, Operation] = {}
        """Every call at which a fault could have struck, in order."""
        self.is_on = True
        self._random = random_stream(seed, "faults")
        # A separate stream, so that a script of faults does not change decisions between store calls.
        self._decisions = random_stream(seed, "decisions")
        self._script = script
        thresholds = [getattr(rates, fault.name.lower()) for fault in _DRAWN]
        self._bounds = [sum(thresholds[: index + 1]) for index in range(len(thresholds))]

    def fault_at(self, call: CallId, operation: Operation) -> FaultKind | None:
        """The fault at this call, if any."""
        if not self.is_on:
            return None
        self.calls[call] = operation
        fault = self._script.get(call) if self._script is not None else self._by_chance()
        if fault is None or not fault.can_strike(operation):
            return None
        self.struck[call] = fault
        return fault

    def should_happen(self, rate: float) -> bool:
        """Whether a fault strikes that has no store call of its own."""
        return self.is_on and self._decisions.random() < rate

    def _by_chance(self) -> FaultKind | None:
        drawn = self._random.random()
        if drawn >= self._bounds[-1]:
            return None
        return next(fault for fault, bound in zip(_DRAWN, self._bounds, strict=True) if drawn < bound)


def parse_script(text: str) -> dict[CallId, FaultKind]:
    """Parse a script from the command line.

    >>> parse_script("d1:17=crash_after,d2:3=late")[CallId("d2", 3)].name
    'LATE'
    """
    script: dict[CallId, FaultKind] = {}
    for item in filter(None, text.split(",")):
        parts = _FAULT.fullmatch(item)
        fault = None if parts is None else FaultKind.__members__.get(parts["kind"].upper())
        if parts is None or fault is None:
            kinds = ", ".join(each.name.lower() for each in FaultKind)
            form = f"actor:call=kind, as in d1:17=late; the kinds are {kinds}"
            raise InvalidInputError("not a fault", object_name=item, expected=form)
        call = CallId(parts["actor"], int(parts["number"]))
        if call in script:
            raise InvalidInputError("two faults at one call", object_name=str(call), expected="one")
        script[call] = fault
    return script


def format_script(script: Script) -> str:
    """The script as the command line takes it."""
    return ",".join(f"{call}={fault.name.lower()}" for call, fault in sorted(script.items()))
