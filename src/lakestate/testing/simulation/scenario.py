"""`Scenario`: everything about a run that is not chance within it, drawn from the seed or given."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from lakestate.protocol.compaction import CompactionPolicy
from lakestate.testing.simulation.faults import FaultRates

EAGER = CompactionPolicy(files_min=2, files_max=3, size_floor_bytes=1)
PARTIAL = CompactionPolicy(files_min=2, files_max=2, size_ratio=0.001, size_floor_bytes=1)
"""Merges the two cheapest neighbours, wherever they are."""
RELAXED = CompactionPolicy(files_min=3, files_max=5, size_floor_bytes=1)


@dataclass(frozen=True)
class Scenario:
    """One history to be lived through."""

    rows: int = 20
    rows_per_epoch: int = 6
    drivers: int = 3
    """Starts with faults; one more without makes the end."""
    parallelism: tuple[int, ...] = (2,)
    """Of the operator, by start; the last stays."""
    sink_parallelism: int | None = None
    """None: the sink is chained to the operator, in the same subtasks."""
    keep_epochs: int = 2
    compaction: CompactionPolicy | None = EAGER
    upgrade_at: int | None = None
    """The start from which on the operator is of its next version."""
    switch_rate: float = 0.1
    page_size: int = 1000
    part_bytes: int = 200
    roll_bytes: int = 600
    is_parquet: bool = False
    is_cached: bool = False
    loses_part: bool = False
    """One part that was acknowledged vanishes: the job must refuse, not lie."""
    tags: int = 1
    readers: int = 1
    check_rate: float = 0.3
    """How often a published epoch is restored at once, besides all retained ones at the end."""
    rates: FaultRates = field(default_factory=FaultRates)

    @staticmethod
    def drawn(random: Random) -> Scenario:
        """A scenario by chance."""
        drivers = random.choice([1, 2, 2, 3, 3, 4])
        return Scenario(
            rows=random.choice([6, 12, 18, 25]),
            rows_per_epoch=random.choice([3, 6, 10]),
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
            is_cached=random.random() < 0.05,
            loses_part=random.random() < 0.03,
            tags=random.choice([0, 0, 1, 2]),
            readers=random.choice([0, 1, 2]),
            rates=FaultRates.drawn(random),
        )
