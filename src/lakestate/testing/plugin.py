"""A pytest plugin: run your own operator under the simulator's faults and compare it with your oracle.

Enable it in `conftest.py` with `pytest_plugins = ["lakestate.testing.plugin"]`. The fixture
`survive_faults` then runs an operator through one history per seed. A failing history is reduced and
printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

import pytest

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError, OperatorError
from lakestate.operators.operator import Operator, TwoInputOperator, has_on_commit, state_tables
from lakestate.testing.operator_harness import OperatorHarness, keyed_config, table_of, with_key_types
from lakestate.testing.simulation.campaigns.shrink import Failure, shrink
from lakestate.testing.simulation.faults import FaultRates
from lakestate.testing.simulation.job import Row, SimulatedJob
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.run import JobFactory, RunResult, run_seed
from lakestate.testing.simulation.scenario import Scenario

SEEDS_DEFAULT = 25
EARLIER_HISTORIES_FAIL = (
    "histories that passed before fail now: the operator keeps state in its module or class"
)
FAILS_WITHOUT_FAULTS = (
    "it fails without faults: the oracle or the operator is wrong, or it keeps state in its module or class"
)
StateOracle = Callable[[Sequence[Row], int | None], Mapping[str, Sequence[Row]]]
OutputOracle = Callable[[Sequence[Row]], Sequence[Row]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose histories."""
    group = parser.getgroup("lakestate")
    group.addoption("--simulation-seeds", type=_parse_count, help="histories in each simulation test")
    group.addoption("--simulation-seed", type=int, default=None, help="run only this history")


@dataclass(frozen=True)
class Target:
    """Where an operator with `on_commit` writes, as a test sees it.

    `clear` empties it before each history, `read` returns its rows, and `expected(rows)` what they must be
    after these rows of the source. Each call of `on_commit` may fail, come twice, or come late.
    """

    clear: Callable[[], object]
    read: Callable[[], Sequence[Row]]
    expected: OutputOracle


class OperatorJob(SimulatedJob):
    """A user's operator, as the simulator runs it."""

    def __init__(
        self,
        make: Callable[[], Operator],
        rows: Sequence[Row],
        *,
        key: Sequence[str] | str | None = None,
        state: StateOracle | None = None,
        output: OutputOracle | None = None,
        ignored: Collection[str] | str = (),
        event_time: str | None = None,
        delay: str = "0 seconds",
        target: Target | None = None,
    ) -> None:
        operator = _make_operator(make)
        _check_target(operator, target)
        key = _names(key) if key else _key_of(operator)
        _check_rows(rows, [*key, *([event_time] if event_time else [])])
        schema = with_key_types(table_of(rows), operator, key).schema
        super().__init__(rows, key, schema)
        self._make = make
        self._state = state
        self._output = output
        self._target = target
        self._tables = frozenset(operator.tables())
        self.ignored = frozenset(_names(ignored))
        self.event_time = event_time
        self.delay_us = duration_us(delay)
        # Refuses invalid times here rather than in the middle of a history.
        self.source_watermark_us(len(self.rows))
        self._check_comparable(operator)

    def first(self, count: int) -> OperatorJob:
        """The same job with only the first `count` rows, and the schema of all."""
        cut = copy.copy(self)
        cut.rows = self.rows[:count]
        return cut

    def operator(self, attempt: str, version: int) -> Operator:
        """A new operator. Users' jobs are not upgraded."""
        return self.call_user_code(self._make)

    def state(self, rows: Sequence[Row], watermark_us: int | None) -> Mapping[str, Sequence[Row]] | None:
        """What the user's oracle returns."""
        if self._state is None:
            return None
        return self.call_user_code(self._tables_of, self._state, rows, watermark_us)

    def output(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        """What the user's oracle returns."""
        return None if self._output is None else self.call_user_code(self._output_of, self._output, rows)

    def committed(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        """What the user's oracle returns for the target."""
        if self._target is None:
            return None
        return self.call_user_code(self._committed_rows, self._target.expected, rows)

    def target(self) -> Sequence[Row]:
        """The rows of the user's target."""
        return () if self._target is None else self.call_user_code(self._committed_rows, self._target.read)

    def clear_target(self) -> None:
        """Empty the user's target before a history."""
        if self._target is not None:
            self._target.clear()

    def _committed_rows(self, rows_of: Callable[..., Sequence[Row]], *arguments: Sequence[Row]) -> list[Row]:
        return self._require_rows("target", rows_of(*arguments))

    def _tables_of(
        self, oracle: StateOracle, rows: Sequence[Row], watermark_us: int | None
    ) -> dict[str, list[Row]]:
        tables = oracle(rows, watermark_us)
        if not isinstance(tables, Mapping) or set(tables) != self._tables:
            raise InvalidInputError(
                "the state oracle must return exactly the tables of the operator",
                found=", ".join(map(str, tables)) if isinstance(tables, Mapping) and tables else repr(tables),
                expected=", ".join(sorted(self._tables)),
            )
        return {name: self._require_rows(f"table {name}", found) for name, found in tables.items()}

    def _output_of(self, oracle: OutputOracle, rows: Sequence[Row]) -> list[Row]:
        return self._require_rows("output", oracle(rows))

    def _require_rows(self, what: str, rows: Iterable[Row]) -> list[Row]:
        """The rows that an oracle returned, if they can be compared."""
        listed = list(rows) if isinstance(rows, Iterable) else [rows]
        for row in listed:
            if not isinstance(row, Mapping):
                raise InvalidInputError(
                    "an oracle must return rows", object_name=what, found=repr(row), expected="dicts"
                )
        Counter(self.comparable(listed))
        return listed

    def _check_comparable(self, operator: Operator) -> None:
        """Refuse a test that would compare nothing and always pass."""
        if self._state is not None and not self._tables:
            raise InvalidInputError("a state oracle for an operator without tables")
        if self._output is not None and not operator.output_columns:
            raise InvalidInputError("an output oracle for an operator that declares no output")
        configs = [table.config for table in state_tables(operator)]
        declared = [column for config in configs for column in (*config.key_columns, *config.value_columns)]
        known = {column.name for column in (*declared, *operator.output_columns)}.union(*self.rows)
        unknown = self.ignored - known
        if unknown:
            raise InvalidInputError(
                "unknown columns to ignore",
                found=", ".join(sorted(unknown)),
                expected=f"some of {', '.join(sorted(known))}",
            )


@dataclass(frozen=True)
class SurviveFaults:
    """Runs an operator through many histories: the value of the fixture `survive_faults`.

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
        key: Sequence[str] | str | None = None,
        state: StateOracle | None = None,
        output: OutputOracle | None = None,
        ignored: Collection[str] | str = (),
        event_time: str | None = None,
        delay: str = "0 seconds",
        target: Target | None = None,
        seeds: int = SEEDS_DEFAULT,
    ) -> None:
        """Fail the test if any history ends with rows that differ from the oracles'.

        `state(rows, watermark_us)` and `output(rows)` get the rows of the source up to some offset,
        in order. They return what each table of the operator holds, by name, and what the operator
        has yielded so far. Both are compared without order. Within an epoch, rows of different keys
        come in any order. Output is compared in its JSON form. An operator with `on_commit` needs a
        `target`.
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
                found = _run(seed, job)
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


def _run(seed: int, job: OperatorJob) -> RunResult:
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
    return any(_run(before, job).violation is not None for before in range(min(seed, SEEDS_DEFAULT)))


def _run_undisturbed(job: OperatorJob) -> None:
    """Raise what the operator raises without faults, with its traceback."""
    job.clear_target()
    harness = OperatorHarness(job.operator("harness", 1), key=job.key)
    harness.drain(job.batch(job.rows), watermark=job.source_watermark_us(len(job.rows)))


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


def _names(given: Collection[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _make_operator(make: Callable[[], Operator]) -> Operator:
    """An operator that the simulator can run."""
    operator = make() if callable(make) else None
    if not isinstance(operator, Operator):
        raise InvalidInputError(
            "every attempt needs an operator of its own",
            found=repr(make) if operator is None else f"a function that makes {operator!r}",
            action="pass the class or a function that makes it",
        )
    if isinstance(operator, TwoInputOperator):
        raise InvalidInputError(
            "an operator with two inputs cannot be simulated yet",
            object_name=type(operator).__name__,
            action="test it with OperatorHarness: epoch, crash and rescale take left= and right=",
        )
    return operator


def _check_target(operator: Operator, target: Target | None) -> None:
    name = type(operator).__name__
    if has_on_commit(operator, name) and target is None:
        raise InvalidInputError(
            "an operator with on_commit needs a target that each history finds empty",
            object_name=name,
            expected="target=Target(clear, read, expected)",
        )
    if target is not None and not has_on_commit(operator, name):
        raise InvalidInputError("a target for an operator without on_commit", object_name=name)


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
    """Suppress the warnings of thousands of crashes."""
    logger = logging.getLogger("lakestate")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _key_of(operator: Operator) -> Sequence[str]:
    config = keyed_config(operator)
    if config is None:
        raise InvalidInputError("no table determines what rows are routed by", expected="key=[…]")
    return config.routing_columns
