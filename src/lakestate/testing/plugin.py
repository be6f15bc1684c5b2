"""A pytest plugin: your own operator under the simulator's faults, against your own oracle.

Switch it on in `conftest.py` with `pytest_plugins = ["lakestate.testing.plugin"]`. The fixture
`survive_faults` then runs an operator through as many histories as there are seeds; a failing one is
made small and printed with the command that repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

import pytest

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.operators.operator import Operator, state_tables
from lakestate.tables.global_keyed import GlobalKeyedTable
from lakestate.testing.simulation.chance import chance
from lakestate.testing.simulation.job import Row, SimulatedJob
from lakestate.testing.simulation.run import run_seed
from lakestate.testing.simulation.scenario import Scenario
from lakestate.testing.simulation.shrink import shrunk

SEEDS_DEFAULT = 25
StateOracle = Callable[[Sequence[Row], int | None], Mapping[str, Sequence[Row]]]
OutputOracle = Callable[[Sequence[Row]], Sequence[Row]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many histories, or which one."""
    group = parser.getgroup("lakestate")
    group.addoption("--simulation-seeds", type=int, default=None, help="histories in each simulation test")
    group.addoption("--simulation-seed", type=int, default=None, help="run only this history, and show it")


class OperatorJob(SimulatedJob):
    """An operator of a user's, as the simulator runs it."""

    def __init__(
        self,
        make: Callable[[], Operator],
        rows: Sequence[Row],
        *,
        key: Sequence[str] | None = None,
        state: StateOracle | None = None,
        output: OutputOracle | None = None,
        ignored: Collection[str] = (),
        event_time: str | None = None,
        delay: str = "0 seconds",
    ) -> None:
        key = key or _key_of(make())
        _check_rows(rows, [*key, *([event_time] if event_time else [])])
        super().__init__(rows, key)
        self._make = make
        self._state = state
        self._output = output
        self.ignored = frozenset(ignored)
        self.event_time = event_time
        self.delay_us = duration_us(delay)

    def operator(self, attempt: str, version: int) -> Operator:
        """A new operator; users' jobs are not upgraded."""
        return self._make()

    def state(self, rows: Sequence[Row], watermark_us: int | None) -> Mapping[str, Sequence[Row]] | None:
        """What the user's oracle says."""
        return None if self._state is None else self._state(rows, watermark_us)

    def output(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        """What the user's oracle says."""
        return None if self._output is None else self._output(rows)


@dataclass(frozen=True)
class SurviveFaults:
    """Runs an operator through many histories. What the fixture `survive_faults` gives.

    >>> import lakestate as ls
    >>> class LastPage(ls.Operator):
    ...     pages = ls.KeyedTable(key="user string", value="page string")
    ...
    ...     def process_batch(self, batch, ctx):
    ...         self.pages.put(batch)
    >>> def pages(rows, watermark_us):
    ...     last = {row["user"]: row["page"] for row in rows}
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
        key: Sequence[str] | None = None,
        state: StateOracle | None = None,
        output: OutputOracle | None = None,
        ignored: Collection[str] = (),
        event_time: str | None = None,
        delay: str = "0 seconds",
        seeds: int = SEEDS_DEFAULT,
    ) -> None:
        """Fail the test if any history ends with other rows than the oracles say.

        `state(rows, watermark_us)` and `output(rows)` are given the rows of the source up to some
        offset, in order, and answer what each table holds and what the operator has yielded so
        far. Both are compared as bags of rows. Within an epoch rows of different keys come in
        any order. Output is compared as JSON gives it back.
        """
        if state is None and output is None:
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
        )
        chosen = range(self.seeds or seeds) if self.only is None else [self.only]
        with _quiet():
            for seed in chosen:
                self._run(seed, job)

    def _run(self, seed: int, job: OperatorJob) -> None:
        scenario = _scenario(seed, job)

        def job_of(random: Random, scenario: Scenario) -> SimulatedJob:
            return job

        if run_seed(seed, scenario=scenario, job_of=job_of).violation is None:
            return
        failure = shrunk(seed, scenario, job_of=job_of)
        told = str(failure).replace(failure.command, f"pytest '{self.test}' --simulation-seed {seed}")
        pytest.fail(told, pytrace=False)


@pytest.fixture
def survive_faults(request: pytest.FixtureRequest) -> SurviveFaults:
    """Run an operator under crashes, lost answers, zombies, rescaling, compaction and retention."""
    options = request.config.option
    return SurviveFaults(
        request.node.nodeid,
        getattr(options, "simulation_seeds", None),
        getattr(options, "simulation_seed", None),
    )


def _scenario(seed: int, job: OperatorJob) -> Scenario:
    drawn = Scenario.drawn(chance(seed, "scenario"))
    return replace(
        drawn,
        rows=len(job.rows),
        rows_per_epoch=max(2, len(job.rows) // 4),
        upgrade_at=None,
        is_parquet=False,
    )


def _check_rows(rows: Sequence[Row], columns: Sequence[str]) -> None:
    if not rows:
        raise InvalidInputError("no rows to run the operator with", expected="some rows of its source")
    for row in rows:
        missing = [name for name in columns if name not in row]
        if missing:
            raise InvalidInputError(
                "a row lacks a column that the job needs", found=row, expected=", ".join(missing)
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of thousands of crashes; the logger is as before afterwards."""
    logger = logging.getLogger("lakestate")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _key_of(operator: Operator) -> Sequence[str]:
    for table in state_tables(operator):
        if not isinstance(table, GlobalKeyedTable):
            return table.config.routing_columns
    raise InvalidInputError("no table says what rows are routed by", expected="key=[…]")
