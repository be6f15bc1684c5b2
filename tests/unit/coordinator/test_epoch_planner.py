"""`EpochPlanner`: what follows from the parent of an epoch."""

from __future__ import annotations

import pytest

from lakestate.coordinator.epoch_plan import Ending, EpochPlan
from lakestate.coordinator.epoch_planner import EpochPlanner, next_epoch
from lakestate.protocol.metadata import Manifest, SourceOffsets
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation

PLANNER = EpochPlanner("job", RetentionPolicy(3), ("clicks", "views"))
GENERATION = Generation(4)


def parent(epoch: int, *sources: SourceOffsets, watermark_us: int | None = None) -> Manifest:
    return Manifest(
        "job",
        Epoch(epoch),
        Generation(2),
        None,
        started_ms=900,
        finished_ms=1_000,
        min_epoch=Epoch(1),
        watermark_us=watermark_us,
        sources=sources,
    )


def test_the_first_epoch_has_no_parent_and_no_watermark() -> None:
    assert PLANNER.plan(None, GENERATION, 50, state_id="s") == EpochPlan(
        job_id="job",
        epoch=Epoch(1),
        generation=GENERATION,
        parent=None,
        watermark_us=None,
        min_epoch=Epoch(1),
        processing_time_us=50_000,
        state_id="s",
    )


def test_an_epoch_follows_its_parent() -> None:
    newest = parent(7, SourceOffsets("clicks", "{}", 30), SourceOffsets("views", "{}", 20), watermark_us=10)
    assert PLANNER.plan(newest, GENERATION, 2_000, state_id="s", ending=Ending.END_OF_STREAM) == EpochPlan(
        job_id="job",
        epoch=next_epoch(newest),
        generation=GENERATION,
        parent=newest,
        watermark_us=20,
        min_epoch=Epoch(6),
        processing_time_us=2_000_000,
        ending=Ending.END_OF_STREAM,
        state_id="s",
    )


def test_an_epoch_that_only_finishes_files_does_not_move_the_watermark() -> None:
    newest = parent(7, SourceOffsets("clicks", "{}", 30), SourceOffsets("views", "{}", 20), watermark_us=10)
    plan = PLANNER.plan(newest, GENERATION, 2_000, state_id="s", ending=Ending.FINISH_FILES)
    assert (plan.watermark_us, plan.ending.finishes_files) == (10, True)


@pytest.mark.parametrize(("now_ms", "planned_ms"), [(999, 1_000), (1_000, 1_000), (1_001, 1_001)])
def test_the_time_of_day_never_decreases(now_ms: int, planned_ms: int) -> None:
    assert PLANNER.plan(parent(1), GENERATION, now_ms, state_id="s").processing_time_us == planned_ms * 1000


def test_a_source_that_has_no_event_time_yet_holds_the_watermark() -> None:
    newest = parent(2, SourceOffsets("clicks", "{}", 30), watermark_us=10)
    assert PLANNER.plan(newest, GENERATION, 0, state_id="s").watermark_us == 10
