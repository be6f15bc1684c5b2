"""`EpochPlanner`: what follows from the parent of an epoch."""

from __future__ import annotations

import pytest

from lakestate.coordinator.epoch_plan import Ending, EpochPlan
from lakestate.coordinator.epoch_planner import EpochPlanner, next_epoch, time_watched
from lakestate.protocol.metadata import Manifest, SourceOffsets
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch, Generation
from lakestate.protocol.watermarks import Watched

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


class TestIdleSources:
    """Clicks have reached 30 and views 20; a source is idle after 100 microseconds without rows."""

    PLANNER = EpochPlanner("job", RetentionPolicy(3), ("clicks", "views"), {"clicks": 100, "views": 100})

    def newest(self, clicks_at_us: int | None, views_at_us: int | None) -> Manifest:
        clicks = SourceOffsets("clicks", "{}", 30, clicks_at_us)
        return parent(7, clicks, SourceOffsets("views", "{}", 20, views_at_us), watermark_us=10)

    @pytest.mark.parametrize(
        ("clicks_at_us", "views_at_us", "watched", "watermark_us"),
        [
            pytest.param(900, 900, Watched(0, 999), 20, id="none is idle"),
            pytest.param(950, 900, Watched(0, 1_000), 30, id="the one that holds it back is idle"),
            pytest.param(900, 950, Watched(0, 1_000), 20, id="the other is idle"),
            pytest.param(900, 900, Watched(0, 1_000), 30, id="all are idle: the greatest"),
            pytest.param(900, 900, Watched(950, 1_049), 20, id="a pause of the job does not count"),
            pytest.param(900, 900, Watched(950, 1_050), 30, id="watched for long enough after a pause"),
            pytest.param(None, None, Watched(950, 1_049), 20, id="of an older format, since the start"),
            pytest.param(900, 900, None, 20, id="nobody watched"),
        ],
    )
    def test_an_idle_source_does_not_hold_the_watermark_back(
        self, clicks_at_us: int | None, views_at_us: int | None, watched: Watched | None, watermark_us: int
    ) -> None:
        newest = self.newest(clicks_at_us, views_at_us)
        assert self.PLANNER.next_watermark_us(newest, watched) == watermark_us
        plan = self.PLANNER.plan(newest, GENERATION, 2_000, state_id="s", watched=watched)
        assert plan.watermark_us == watermark_us

    def test_a_source_that_never_had_rows_is_idle_too(self) -> None:
        newest = parent(7, SourceOffsets("clicks", "{}", 30, 950), watermark_us=10)
        assert self.PLANNER.next_watermark_us(newest, Watched(0, 99)) == 10
        assert self.PLANNER.next_watermark_us(newest, Watched(0, 100)) == 30

    def test_a_source_without_a_limit_holds_it_back_for_ever(self) -> None:
        planner = EpochPlanner("job", RetentionPolicy(3), ("clicks", "views"), {"clicks": 100})
        assert planner.next_watermark_us(self.newest(900, 900), Watched(0, 10**9)) == 20

    def test_the_watermark_never_goes_back_when_a_source_wakes_up(self) -> None:
        clicks = SourceOffsets("clicks", "{}", 30, 900)
        woken = parent(8, clicks, SourceOffsets("views", "{}", 22, 1_000), watermark_us=30)
        assert self.PLANNER.next_watermark_us(woken, Watched(0, 1_000)) == 30

    @pytest.mark.parametrize(
        ("clicks_at_us", "views_at_us", "until_us", "moves_at_us"),
        [
            pytest.param(900, 900, 950, 1_000, id="when all are idle"),
            pytest.param(980, 900, 950, 1_000, id="when the one that holds it back is"),
            pytest.param(900, 980, 950, 1_080, id="not when the other is"),
            pytest.param(900, 900, 1_000, None, id="it has moved"),
        ],
    )
    def test_it_is_known_when_the_watermark_moves(
        self, clicks_at_us: int, views_at_us: int, until_us: int, moves_at_us: int | None
    ) -> None:
        newest = self.newest(clicks_at_us, views_at_us)
        assert self.PLANNER.moves_at_us(newest, Watched(0, until_us)) == moves_at_us

    def test_it_never_moves_by_itself_if_no_source_can_be_idle(self) -> None:
        assert PLANNER.moves_at_us(self.newest(900, 900), Watched(0, 950)) is None


@pytest.mark.parametrize(
    ("newest", "silent_us", "until_us"),
    [
        pytest.param(None, None, 70_000, id="a job without an epoch"),
        pytest.param(parent(1), None, 900_000, id="rows may have come since the newest epoch began"),
        pytest.param(parent(1), 5_000_000, 5_000_000, id="all sources are silent"),
        pytest.param(parent(1), 950_000, 1_000_000, id="time never goes back"),
    ],
)
def test_a_driver_knows_until_when_it_would_have_seen_rows(
    newest: Manifest | None, silent_us: int | None, until_us: int
) -> None:
    assert time_watched(newest, 70_000, silent_us) == Watched(70_000, until_us)


def test_a_source_that_has_no_event_time_yet_holds_the_watermark() -> None:
    newest = parent(2, SourceOffsets("clicks", "{}", 30), watermark_us=10)
    assert PLANNER.plan(newest, GENERATION, 0, state_id="s").watermark_us == 10
