"""A job is damaged a thousand times: the damage is named or harmless, and never gives a wrong row.

For every mutation, `verify` names the object; restoring an epoch that needs it gives exactly the
oracle's rows or an error that names it; and so does continuing the job with its sinks.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import xxhash
from tests.support.corruption.arena import Arena, Target
from tests.support.corruption.job import (
    JOB,
    OPERATORS,
    ROWS_PER_EPOCH,
    CorruptionJob,
    expected_output,
    expected_state,
)
from tests.support.corruption.mutations import MUTATIONS as WAYS
from tests.support.corruption.mutations import Damage, damage
from tests.support.corruption.outcomes import COLUMNS, table_of
from tests.support.repository import ROOT

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending
from lakestate.errors import LakestateError, NotFoundError
from lakestate.protocol.values import Epoch
from lakestate.storage.parallel import run_sequentially
from lakestate.verification import VerificationReport
from lakestate.verification import job as verification

MUTATIONS = 1_000
MUTATIONS_SHARE = 200
"""So many in `make test`, the others in `make test-full`."""

HARMLESS = {
    ("commit marker", "delete"): "the commit is done again, and finds it done",
    ("tag", "delete"): "as if its owner had deleted it: the epoch goes with the next retention",
    ("tag", "older"): "it names an epoch that is still there: that one is kept",
    ("retention boundary", "older"): "it names an epoch that is still there: retention keeps more",
    ("epoch record", "delete"): "the epoch was not committed: it runs again",
    ("hidden file", "extend"): "what follows the position of the checkpoint does not count",
    ("orphan", "*"): "nothing refers to it",
    ("part without reference", "*"): "no checkpoint refers to it",
    ("lane claim", "*"): "only that it is there counts, and only against an attempt that was given up",
}
"""What `verify` need not name, and why. The rows must be right all the same."""

DOCUMENTATION = ROOT / "docs/reliability.md"


class Campaign:
    """Damages, looks, and counts."""

    def __init__(self, arenas: list[Arena]) -> None:
        self._arenas = arenas
        self._last: Arena | None = None
        self.outcomes: Counter[tuple[str, str, str]] = Counter()

    def strike(self, seed: int) -> None:
        rng = random.Random(seed)
        arena = rng.choice(self._arenas)
        if self._last is not arena:
            arena.job.put_back(arena.world)
            self._last = arena
        target = rng.choice(arena.targets[rng.choice(sorted(arena.targets))])
        mutation, done = damage(rng, arena.original(target))
        damaged = arena.apply(target, done)
        try:
            self._judge(rng, arena, damaged, mutation, _continue_share(target))
        except Exception as error:
            told = f"{mutation} of {target.kind} {target.path} in epochs up to {arena.newest}"
            raise AssertionError(f"seed {seed}: {told}: {error}") from error
        finally:
            arena.put_back(damaged)

    def strike_at(self, arena: Arena, target: Target, mutation: str, data: bytes | None) -> None:
        """Strike with this damage only; the job continues from it."""
        arena.job.put_back(arena.world)
        self._last = arena
        damaged = arena.apply(target, Damage(data))
        try:
            self._judge(random.Random(0), arena, damaged, mutation, go_on_share=1.0)
        finally:
            arena.put_back(damaged)

    def _judge(
        self,
        rng: random.Random,
        arena: Arena,
        damaged: Sequence[Target],
        mutation: str,
        go_on_share: float,
    ) -> None:
        report = ls.verify(arena.job.backend, JOB, sinks=arena.job.sinks)
        is_named = [_is_named(target, mutation, report) for target in damaged]
        self.outcomes[damaged[0].kind, mutation, "named" if is_named[0] else "harmless"] += 1
        _check_verdicts(report, [target for target, found in zip(damaged, is_named, strict=True) if found])
        raised = None
        if damaged[0].place == "state":
            raised = self._restore(rng, arena, damaged, [verdict.epoch for verdict in report.epochs])
        if rng.random() < go_on_share:
            raised = self._continue_job(arena, damaged) or raised
        if not any(is_named):
            assert raised is None, f"harmless, and yet {raised!r}"

    def _restore(
        self, rng: random.Random, arena: Arena, damaged: Sequence[Target], kept: Sequence[Epoch]
    ) -> LakestateError | None:
        """Restore an epoch that needs the object, or any, at any parallelism."""
        target = damaged[0]
        epoch = rng.choice([epoch for epoch in kept if epoch in (target.epochs or arena.world.upto)] or kept)
        mine = [name for name in OPERATORS if f"/operator-{name}" in target.path] or list(OPERATORS)
        try:
            found = arena.job.restore_state(epoch, rng.randint(1, 3), mine)
        except LakestateError as error:
            _check_told(error, damaged)
            return error
        expected = expected_state(arena.world.upto[epoch])
        assert found == {name: expected[name] for name in found}
        return None

    def _continue_job(self, arena: Arena, damaged: Sequence[Target]) -> LakestateError | None:
        """Start a driver and run one more epoch, the last; then all output must be there."""
        job, offset = arena.job, max(arena.world.upto.values())
        driver = job.driver()
        try:
            # In one of the worlds the stream had ended.
            driver.start(reopen=True)
            job.run_epoch(driver, ending=Ending.END_OF_STREAM)
            assert driver.parent is not None
            offset = int(driver.parent.sources[0].offsets)
            assert job.restore_state(driver.parent.epoch, 2) == expected_state(offset)
            assert job.visible() == expected_output(offset)
            _check_retained(arena, damaged)
        except LakestateError as error:
            _check_told(error, damaged)
            _check_visible(job, expected_output(offset + ROWS_PER_EPOCH))
            return error
        finally:
            driver.stop()
            job.put_back(arena.world)
        return None


def _continue_share(target: Target) -> float:
    """How often to continue the job as well: it takes most of the time, and shows most about sinks."""
    if target.place != "state" or target.kind == "run of a sink":
        return 0.5
    if target.kind == "epoch record":
        return 0.4
    return 0.15 if target.epochs or target.kind == "orphan" else 0.4


def _is_named(target: Target, mutation: str, report: VerificationReport) -> bool:
    """Whether the report names it. If not, there is a reason."""
    told = (f"{finding.object_name} {finding.found}" for finding in report.findings)
    if any(name in each for each in told for name in target.names):
        return True
    reason = HARMLESS.get((target.kind, mutation)) or HARMLESS.get((target.kind, "*"))
    assert reason, f"{target.path} is not named by {report}"
    return False


def _check_told(error: LakestateError, damaged: Sequence[Target]) -> None:
    names = [name for target in damaged for name in target.names]
    assert any(name in str(error) for name in names), f"not named by {error}"


def _check_verdicts(report: VerificationReport, named: Sequence[Target]) -> None:
    """An epoch is called restorable exactly if it needs no damaged object."""
    needed = {epoch for target in named for epoch in target.epochs}
    for verdict in report.epochs:
        assert verdict.is_restorable == (verdict.epoch not in needed), f"{verdict}"
    assert needed <= {verdict.epoch for verdict in report.epochs}


def _check_retained(arena: Arena, damaged: Sequence[Target]) -> None:
    """Retention ran as well: what is kept can be restored, and what tags keep is kept."""
    if damaged[0].kind not in ("tag", "retention boundary", "fence"):
        return
    gone = {path for path in (target.path for target in damaged) if not arena.is_there(path)}
    for name, epoch in (("kept-2", Epoch(2)), ("kept-4", Epoch(4))):
        try:
            assert arena.job.restore_state(epoch, 1) == expected_state(arena.world.upto[epoch])
        except NotFoundError:
            assert f"{JOB}/tags/{name}.json" in gone, f"{name} was not kept"


def _check_visible(job: CorruptionJob, most: dict[str, list[dict[str, Any]]]) -> None:
    """Whatever happened, readers see no row that is wrong, and none twice."""
    for sink, rows in job.visible().items():
        surplus = Counter(map(_told, rows)) - Counter(map(_told, most[sink]))
        assert not surplus, f"{sink}: {list(surplus)[:3]}"


def _told(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["user"], row["row"], row.get("n"), row.get("ts")


@pytest.fixture
def checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a data file says follows from its bytes: those seen before are not decoded again."""
    check: Callable[..., None] = verification.check_data_file
    right: set[tuple[object, int]] = set()

    def remembered(file: Any, config: Any, context: Any) -> None:
        try:
            data = context.objects.store.get(context.objects.store_path(file.path)).data
        except LakestateError:
            data = b""
        known = (file, xxhash.xxh3_64_intdigest(data))
        if known not in right:
            check(file, config, context)
            right.add(known)

    monkeypatch.setattr(verification, "check_data_file", remembered)


def test_a_table_of_outcomes_is_that_of_the_documentation() -> None:
    assert sorted(COLUMNS) == sorted(WAYS)
    outcomes = Counter({("run of a KeyedTable", "flip", "named"): 2, ("tag", "delete", "harmless"): 1})
    header, *lines = table_of(outcomes).splitlines()
    assert header in DOCUMENTATION.read_text().splitlines()
    assert lines == [
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        "| tag | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 0 | 1 |",
        "| run of a `KeyedTable` | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 2 | 0 |",
        "| all | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 2 | 1 |",
    ]


def boundary_set_back(arena: Arena) -> tuple[str, bytes]:
    """To an epoch that only a tag has kept."""
    found = arena.job.backend.objects(JOB).read_boundary()
    assert found is not None
    assert found.record.oldest > 2
    return "retention", replace(found.record, oldest=Epoch(2)).encode()


def tag_set_back(arena: Arena) -> tuple[str, bytes]:
    """To an epoch that another tag keeps."""
    there = {tag.name: tag for tag in arena.job.backend.objects(JOB).read_tags()}
    assert there["moved"].epoch == 4
    return "tags/moved", replace(there["kept-2"], name="moved").encode()


def newest_record_deleted(arena: Arena) -> tuple[str, None]:
    """Of the epoch that was published and not committed."""
    return f"epochs/{arena.newest:010d}", None


# The thousand do not meet these three: there, an older version names an epoch that is gone.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mutation", "change"),
    [
        ("retention boundary", "older", boundary_set_back),
        ("tag", "older", tag_set_back),
        ("epoch record", "delete", newest_record_deleted),
    ],
)
def test_a_good_record_of_another_time_is_harmless(
    arenas: list[Arena], kind: str, mutation: str, change: Callable[[Arena], tuple[str, bytes | None]]
) -> None:
    campaign, arena = Campaign(arenas), arenas[1]
    with run_sequentially():
        arena.job.put_back(arena.world)
        name, data = change(arena)
        [target] = [target for target in arena.targets[kind] if target.path == f"{JOB}/{name}.json"]
        campaign.strike_at(arena, target, mutation, data)
    assert campaign.outcomes == {(kind, mutation, "harmless"): 1}


# Each mutation is a verification of the whole job, a restore, and often a start.
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("checked_once")
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(MUTATIONS_SHARE), id="some"),
        pytest.param(range(MUTATIONS_SHARE, MUTATIONS), id="others", marks=pytest.mark.full),
    ],
)
def test_a_thousand_mutations_are_named_or_harmless(seeds: range, arenas: list[Arena]) -> None:
    campaign = Campaign(arenas)
    with run_sequentially():
        for seed in seeds:
            campaign.strike(seed)
    print("\n" + table_of(campaign.outcomes))
    assert campaign.outcomes.total() == len(seeds)
    struck = {kind for kind, _, _ in campaign.outcomes}
    assert struck == {kind for arena in arenas for kind in arena.targets}
    assert len(struck) == 17


@pytest.mark.soak
def test_mutations_are_named_or_harmless_for_as_long_as_there_is_time(
    arenas: list[Arena], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every file is decoded every time here."""
    campaign = Campaign(arenas)
    given = [int(seed) for seed in os.environ.get("SEEDS", "").split(",") if seed]
    until_s = float("inf") if given else time.monotonic() + 60 * float(os.environ.get("SOAK_MINUTES", "10"))
    with run_sequentially():
        for seed in given or count():
            campaign.strike(seed)
            if time.monotonic() > until_s:
                break
    with capsys.disabled():
        print("\n" + table_of(campaign.outcomes))
