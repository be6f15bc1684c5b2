"""`Scenario`: the settings of a run, drawn from its seed or given."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from lakestate.errors import InvalidInputError
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.key_ranges import PARALLELISM_MAX
from lakestate.testing.simulation.faults import FaultRates

EAGER = CompactionPolicy(files_min=2, files_max=3, size_floor_bytes=1)
PARTIAL = CompactionPolicy(files_min=2, files_max=2, size_ratio=0.001, size_floor_bytes=1)
"""Merges the two cheapest adjacent runs."""
RELAXED = CompactionPolicy(files_min=3, files_max=5, size_floor_bytes=1)
_POLICIES = {"eager": EAGER, "partial": PARTIAL, "relaxed": RELAXED, "none": None}
_DECISIONS = ("superseded", "second_driver")
"""The rates that apply even to runs with a script of faults."""
_RATES = ("switch_rate", *_DECISIONS)
_CHOICES = {
    "compaction": tuple(_POLICIES),
    "table": ("none", "delta", "iceberg"),
    "table_rows": ("append", "visible", "key"),
}
_OPTIONAL = ("sink_parallelism", "upgrade_at")
_MANY = 1_000_000
_RANGES = {
    "rows": (1, _MANY),
    "rows_per_epoch": (1, _MANY),
    "drivers": (0, _MANY),
    "parallelism": (1, PARALLELISM_MAX),
    "sink_parallelism": (1, PARALLELISM_MAX),
    "keep_epochs": (1, _MANY),
    "upgrade_at": (0, _MANY),
    "page_size": (1, _MANY),
    "part_bytes": (1, _MANY),
    "roll_bytes": (1, _MANY),
    "tags": (0, _MANY),
    "readers": (0, _MANY),
    "forks": (0, _MANY),
    "change_readers": (0, _MANY),
    "sinks": (0, 2),
    "patience_min": (0, _MANY),
} | dict.fromkeys(_RATES, (0, 1))
"""Minimum and maximum. Outside of them a run is meaningless."""


@dataclass(frozen=True)
class Scenario:
    """The settings of one history."""

    rows: int = 20
    rows_per_epoch: int = 6
    drivers: int = 3
    """Starts of the driver with faults. Starts without faults follow until the job has finished."""
    parallelism: tuple[int, ...] = (2,)
    """Parallelism of the operator at each start; the last value applies to later starts."""
    sink_parallelism: int | None = None
    """None if the sink is chained to the operator, in the same subtasks."""
    keep_epochs: int = 2
    compaction: CompactionPolicy | None = EAGER
    upgrade_at: int | None = None
    """Starts after this one run the next version of the operator."""
    switch_rate: float = 0.1
    page_size: int = 1000
    part_bytes: int = 200
    roll_bytes: int = 600
    is_parquet: bool = False
    is_cached: bool = False
    loses_part: bool = False
    """One acknowledged part is lost: the job must refuse to continue and show no wrong output."""
    tags: int = 1
    readers: int = 1
    rates: FaultRates = field(default_factory=FaultRates)
    sinks: int = 1
    """With two sinks, each writes the same rows to its own store."""
    part_objects: bool = False
    """Parts of uploads are objects, as on Google and Azure: completing takes many store calls."""
    patience_min: int = 120
    """How long to wait for a stalled driver before the next one is started."""
    is_skewed: bool = False
    """The clocks of hosts differ by up to two hours."""
    small_limits: bool = False
    """Small limits that otherwise matter only in long histories: clean-up, lanes, remembered references."""
    is_paused: bool = False
    """While there are faults, drivers sometimes finish all files and stop after an epoch."""
    absorbs: bool = False
    """Epochs write small runs again together with their own rows; otherwise only merges do."""
    commits: bool = False
    """The operator has output of its own, which `on_commit` adds to a ledger."""
    goes_back: bool = False
    """Some drivers begin by going back to an earlier epoch: what is visible by then is written again."""
    has_neighbour: bool = False
    """Other jobs use the same output: one of the same name, and a copy of the job."""
    snapshots: bool = False
    """Sinks leave complete copies of their open files with each checkpoint."""
    silences: bool = False
    """The source is sometimes silent, and epochs without rows run: also before the first batch."""
    ends_later: bool = False
    """The stream ends in an epoch without rows, and not with its last row."""
    delivers: bool = False
    """A further sink stages its rows with each epoch and delivers them to a target with transactions."""
    delivers_to_log: bool = False
    """That target is a log: a transaction takes several calls, and writers fence each other."""

    table: str = "none"
    """A further sink writes to a table: of deltalake, or of pyiceberg."""
    table_rows: str = "append"
    """Its rows are appended; or also visible in small files while a large one is open; or kept by key."""
    table_visitor: bool = False
    """Others append to the table, delete rows of it, compact it and remove its history."""

    forks: int = 0
    """Jobs that begin with an epoch of this one, share its objects, and are forked again."""
    change_readers: int = 0
    """Registered readers of changes: each keeps the epoch that it has read until it has read the next."""

    @staticmethod
    def draw(random: Random) -> Scenario:
        """A random scenario."""
        drivers = random.choice([1, 2, 2, 3, 3, 4])
        return Scenario(
            rows=random.choice([6, 12, 18, 24]),
            rows_per_epoch=random.choice([4, 8, 12]),
            drivers=drivers,
            parallelism=tuple(random.choice([1, 1, 2, 3]) for _ in range(drivers + 1)),
            sink_parallelism=random.choice([None, None, 1, 2]),
            keep_epochs=random.choice([1, 1, 2, 3]),
            compaction=random.choice([EAGER, EAGER, PARTIAL, RELAXED, None]),
            upgrade_at=random.choice([None, None, *range(1, drivers + 1)]),
            switch_rate=random.choice([0.0, 0.02, 0.1, 0.5]),
            page_size=random.choice([2, 7, 1000]),
            part_bytes=random.choice([60, 200, 1000]),
            roll_bytes=random.choice([1, 300, 1000, 100_000]),
            is_parquet=random.random() < 0.1,
            is_cached=random.random() < 0.08,
            loses_part=random.random() < 0.03,
            tags=random.choice([0, 0, 1, 2]),
            readers=random.choice([0, 1, 2]),
            rates=FaultRates.draw(random),
            sinks=random.choice([1, 1, 1, 2]),
            part_objects=random.random() < 0.3,
            patience_min=random.choice([30, 120, 120]),
            is_skewed=random.random() < 0.3,
            small_limits=random.random() < 0.3,
            is_paused=random.random() < 0.3,
            absorbs=random.random() < 0.4,
            commits=random.random() < 0.4,
            goes_back=random.random() < 0.2,
            has_neighbour=random.random() < 0.3,
            snapshots=random.random() < 0.3,
            silences=random.random() < 0.4,
            ends_later=random.random() < 0.3,
            delivers=random.random() < 0.3,
            forks=random.choice([0, 0, 0, 0, 1]),
            change_readers=random.choice([0, 0, 0, 1]),
            delivers_to_log=random.random() < 0.5,
        )

    @staticmethod
    def draw_with_table(random: Random) -> Scenario:
        """A random scenario with a table as the only output."""
        drawn = replace(
            Scenario.draw(random),
            sinks=0,
            table=random.choice(_CHOICES["table"][1:]),
            table_rows=random.choice(_CHOICES["table_rows"]),
            table_visitor=random.random() < 0.6,
            roll_bytes=random.choice([1, 2_000, 1_000_000]),
            rows=random.choice([6, 10, 14]),
            rows_per_epoch=random.choice([3, 5]),
            goes_back=random.random() < 0.3,
            upgrade_at=None,
            is_cached=False,
            loses_part=False,
            readers=0,
            forks=0,
            change_readers=0,
            commits=False,
            delivers=False,
            has_neighbour=False,
            snapshots=False,
        )
        return drawn.with_more_epochs() if drawn.goes_back else drawn

    def with_more_epochs(self) -> Scenario:
        """So many that drivers find earlier ones to go back to, with files that stay open meanwhile."""
        return replace(self, rows=24, rows_per_epoch=6, drivers=4, keep_epochs=3, roll_bytes=1_000_000)

    def changes_from(self, other: Scenario) -> list[str]:
        """The settings that turn another scenario into this one, for a run with a script of faults.

        >>> Scenario(rows=6, compaction=None).changes_from(Scenario())
        ['rows=6', "compaction='none'"]
        """
        mine, its = self._settings(), other._settings()
        return [f"{name}={value!r}" for name, value in mine.items() if value != its[name]]

    def with_setting(self, setting: str) -> Scenario:
        """The same scenario with one setting changed, in the form of `changes_from`.

        >>> Scenario().with_setting("rows=6").rows
        6
        """
        name, _, text = setting.partition("=")
        if name not in self._settings():
            raise InvalidInputError(
                "no such setting", object_name=name, expected=", ".join(sorted(self._settings()))
            )
        value = _parse_value(name, text)
        changes: dict[str, Any] = {name: _POLICIES[value] if name == "compaction" else value}
        if name in _DECISIONS:
            changes = {"rates": replace(self.rates, **changes)}
        return replace(self, **changes)

    def _settings(self) -> dict[str, Any]:
        found = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "rates"}
        found["compaction"] = next(name for name, each in _POLICIES.items() if each == self.compaction)
        return found | {name: getattr(self.rates, name) for name in _DECISIONS}


def _parse_value(name: str, text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as cause:
        raise _not_a_value(name, text) from cause
    if not _is_value(name, value):
        raise _not_a_value(name, text)
    return value


def _is_value(name: str, value: Any) -> bool:
    if name in _CHOICES:
        return isinstance(value, str) and value in _CHOICES[name]
    if name not in _RANGES:
        return isinstance(value, bool)
    if name == "parallelism":
        return isinstance(value, tuple) and bool(value) and all(_is_in_range(name, each) for each in value)
    return (value is None and name in _OPTIONAL) or _is_in_range(name, value)


def _is_in_range(name: str, value: Any) -> bool:
    least, most = _RANGES[name]
    # To Python, True is a number.
    is_number = isinstance(value, float | int if name in _RATES else int) and not isinstance(value, bool)
    return is_number and least <= value <= most


def _not_a_value(name: str, text: str) -> InvalidInputError:
    if name in _CHOICES:
        expected = "one of " + ", ".join(map(repr, _CHOICES[name]))
    elif name not in _RANGES:
        expected = "True or False"
    else:
        least, most = _RANGES[name]
        number = f"{'a number' if name in _RATES else 'a whole number'} from {least} to {most}"
        expected = f"(2, 1) or the like, each {number}" if name == "parallelism" else number
        expected += " or None" if name in _OPTIONAL else ""
    return InvalidInputError(
        "not a value of this setting", object_name=name, found=text or "nothing", expected=expected
    )
