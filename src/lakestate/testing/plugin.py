"""A pytest plugin: run your own operator under the simulator's faults and compare it with your oracle.

Enable it in `conftest.py` with `pytest_plugins = ["lakestate.testing.plugin"]`. The fixture
`survive_faults` then runs an operator through one history per seed. A failing history is reduced and
printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

import pytest

from lakestate.errors import InvalidInputError, OperatorError
from lakestate.operators.operator import Operator
from lakestate.testing.operator_harness import OperatorHarness
from lakestate.testing.operator_job import OperatorJob, OutputOracle, StateOracle, Target
from lakestate.testing.simulation.campaigns.shrink import Failure, shrink
from lakestate.testing.simulation.faults import FaultRates
from lakestate.testing.simulation.job import SimulatedJob
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.run import JobFactory, RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.seen import Left, Right, Row, Seen, SeenEpoch

__all__ = ["Left", "Right", "Seen", "SeenEpoch", "SurviveFaults", "Target", "survive_faults"]

SEEDS_DEFAULT = 25
EARLIER_HISTORIES_FAIL = (
    "histories that passed before fail now: the operator keeps state in its module or class"
)
FAILS_WITHOUT_FAULTS = (
    "it fails without faults: the oracle or the operator is wrong, or it keeps state in its module or class"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose histories."""
    group = parser.getgroup("lakestate")
    group.addoption("--simulation-seeds", type=_parse_count, help="histories in each simulation test")
    group.addoption("--simulation-seed", type=int, default=None, help="run only this history")


@dataclass(frozen=True)
class SurviveFaults:
    """Runs an operator through many histories: the value of the fixture `survive_faults`.

    >>> import lakestate as ls
    >>> class LastPage(ls.Operator):
    ...     pages = ls.KeyedTable(key="user string", value="page string")
    ...
    ...     def process_batch(self, batch, ctx):
    ...         self.pages.put(batch)
    >>> def pages(seen):
    ...     last = {row["user"]: row["page"] for row in seen.rows}
    ...     return {"pages": [{"user": user, "page": page} for user, page in last.items()]}
    >>> rows = [{"user": "ann", "page": "/a"}, {"user": "bob", "page": "/b"}]
    >>> SurviveFaults("test_pages")(LastPage, rows, state=pages, seeds=3)
    """

    test: str
    seeds: int | None = None
    only: int | None = None

    def __call__(
        self,
        operator: Callable[[], Operator],
        rows: Sequence[Row],
        *,
        key: Sequence[str] | str | None = None,
        state: StateOracle | None = None,
        output: OutputOracle | None = None,
        ignored: Collection[str] | str = (),
        event_time: Sequence[str] | str | None = None,
        delay: str = "0 seconds",
        target: Target | None = None,
        seeds: int = SEEDS_DEFAULT,
    ) -> None:
        """Fail the test if any history ends with rows that differ from the oracles'.

        `state(seen)` and `output(seen)` get what the operator has seen up to some epoch: `seen.rows` in
        the order of the source, `seen.watermark_us`, and `seen.epochs` with the rows and the watermark of
        each. They return what each table of the operator holds, by name, and what the operator has yielded
        so far. Both are compared without order. Within an epoch, rows come in any order. Output is compared
        in its JSON form. Rows of an operator with two inputs are `Left(…)` and `Right(…)`. An operator with
        `on_commit` needs a `target`.
        """
        if state is None and output is None and target is None:
            raise InvalidInputError("nothing to compare with", expected="an oracle for state or output")
        job = OperatorJob(
            operator,
            rows,
            key=key,
            state=state,
            output=output,
            ignored=ignored,
            event_time=event_time,
            delay=delay,
            target=target,
        )
        count = seeds if self.seeds is None else self.seeds
        if count < 1:
            raise InvalidInputError("no history to run", found=f"seeds={count}", expected="at least 1")
        with _quiet():
            for seed in range(count) if self.only is None else [self.only]:
                found = run_history(seed, job)
                if found.violation is not None:
                    pytest.fail(self._failure_report(found, job), pytrace=False)

    def _failure_report(self, found: RunResult, job: OperatorJob) -> str:
        """The report of a failure in its smallest form."""
        if found.violation is not None and isinstance(found.violation.cause, OperatorError):
            _run_undisturbed(job)
        seed = found.seed
        failure = shrink(seed, _scenario(seed, job), make_job=_job_factory(job), found=found)
        has_before = self.only is None and seed > 0
        earlier_fail = has_before and failure.is_repeatable and _earlier_histories_fail(seed, job)
        option = f"--simulation-seed {seed}"
        if earlier_fail or (has_before and not failure.is_repeatable):
            # Includes what earlier histories have left in the process.
            option = f"--simulation-seeds {seed + 1}"
        remarks = _remarks(failure, job, earlier_fail=earlier_fail)
        return failure.report(f"pytest {shlex.quote(self.test)} {option}", *remarks)


@pytest.fixture
def survive_faults(request: pytest.FixtureRequest) -> SurviveFaults:
    """Run an operator under crashes, lost answers, stalled drivers, rescaling, compaction and retention."""
    options = request.config.option
    # Relative to the current directory: node ids are relative to the root of the project.
    path = os.path.relpath(request.node.path, request.config.invocation_params.dir)
    return SurviveFaults(
        "::".join([path, *request.node.nodeid.split("::")[1:]]),
        getattr(options, "simulation_seeds", None),
        getattr(options, "simulation_seed", None),
    )


def run_history(seed: int, job: OperatorJob) -> RunResult:
    """Run one history of a job."""
    return run_seed(seed, scenario=_scenario(seed, job), make_job=_job_factory(job))


def _job_factory(job: OperatorJob) -> JobFactory:
    def make_job(random: Random, scenario: Scenario) -> SimulatedJob:
        job.clear_target()
        return job.first(scenario.rows)

    return make_job


def _remarks(failure: Failure, job: OperatorJob, *, earlier_fail: bool) -> Iterator[str]:
    """Further remarks about a failure."""
    if failure.scenario.rows < len(job.rows):
        yield f"with the first {failure.scenario.rows} of {len(job.rows)} rows"
    if earlier_fail:
        yield EARLIER_HISTORIES_FAIL
    elif failure.is_repeatable and not failure.script and failure.scenario.rates == FaultRates():
        yield FAILS_WITHOUT_FAULTS


def _earlier_histories_fail(seed: int, job: OperatorJob) -> bool:
    """Whether a history that passed before fails now, because an earlier one left something behind."""
    return any(run_history(before, job).violation is not None for before in range(min(seed, SEEDS_DEFAULT)))


def _run_undisturbed(job: OperatorJob) -> None:
    """Raise what the operator raises without faults, with its traceback."""
    job.clear_target()
    harness = OperatorHarness(job.operator("harness", 1), key=job.key)
    inputs = {name or "rows": rows for name, rows in job.inputs(job.rows).items()}
    harness.epoch(**inputs, watermark=job.source_watermark_us(len(job.rows)))
    harness.drain()


def _scenario(seed: int, job: OperatorJob) -> Scenario:
    drawn = Scenario.draw(random_stream(seed, "scenario"))
    return replace(
        drawn,
        rows=len(job.rows),
        rows_per_epoch=max(2, len(job.rows) // 4),
        upgrade_at=None,
        is_parquet=False,
        commits=False,
    )


def _parse_count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} histories test nothing: at least 1")
    return count


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of thousands of crashes."""
    logger = logging.getLogger("lakestate")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
