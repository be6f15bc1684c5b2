"""`OperatorHarness`: run an operator over rows with epochs, crashes and rescaling, without Spark.

Subtasks, checkpoints and the epoch protocol are those of production, over a store in memory. A test
of an operator takes milliseconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lakestate.config import require_instance
from lakestate.coordinator.commit import OperatorCommit, OperatorCommitter
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult, SubtaskReport
from lakestate.coordinator.epoch_progress import EpochFinished
from lakestate.coordinator.job_driver import DriverSettings, JobDriver
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import ConflictError, InvalidInputError
from lakestate.observability.progress import EpochProgress
from lakestate.operators.operator import Operator, check_timers, has_on_commit, state_tables
from lakestate.protocol.metadata import SourceOffsets, TableConfig
from lakestate.protocol.values import TaskInfo
from lakestate.runtime.initial_state import initial_input
from lakestate.runtime.operator_commit import operator_committer
from lakestate.runtime.steps import ChainLink, OperatorStep
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.tables.arrow.conform import conform_columns
from lakestate.tables.arrow.schema import arrow_type
from lakestate.tables.event_time import EventTimeLike
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.tables.manager import TableManager
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.harness_times import HarnessClock, with_watermark

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]"
OPERATOR_ID = "operator"
_SOURCE = "rows"


class OperatorHarness:
    """One operator as a whole job.

    `key` names the columns that rows are routed by. The default is the key of the operator's first
    table that is partitioned by key. Rows are Arrow tables, record batches or dicts; numeric key
    columns are cast to the types of that table's key. `initial` fills tables before the first epoch.

    >>> import lakestate as ls
    >>> class LastSeen(ls.Operator):
    ...     output = "user string, page string"
    ...     seen = ls.KeyedTable(key="user string", value="page string")
    ...
    ...     def process_batch(self, batch, ctx):
    ...         self.seen.put(batch)
    ...
    ...     def on_close(self, ctx):
    ...         for batch in list(self.seen.scan()):
    ...             yield batch
    ...             self.seen.delete(batch)
    >>> harness = OperatorHarness(LastSeen(), parallelism=2)
    >>> harness.epoch([{"user": "ann", "page": "/a"}, {"user": "bob", "page": "/b"}])
    []
    >>> harness.crash([{"user": "ann", "page": "/lost"}])
    >>> harness.rescale(3)
    >>> sorted(harness.rows("seen"), key=str)
    [{'user': 'ann', 'page': '/a'}, {'user': 'bob', 'page': '/b'}]
    >>> sorted(row["page"] for row in harness.drain())
    ['/a', '/b']
    """

    def __init__(
        self,
        operator: Operator,
        *,
        parallelism: int = 1,
        key: Sequence[str] | str | None = None,
        backend: ParquetBackend | None = None,
        settings: DriverSettings | None = None,
        initial: Mapping[str, Rows] | None = None,
    ) -> None:
        self._operator = require_instance("the operator", operator, Operator)
        check_timers(operator, type(operator).__name__, has_event_time=True)
        self._parallelism = parallelism
        self._key = _key_of(operator, key)
        self._clock = HarnessClock() if backend is None else None
        self._backend = backend or ParquetBackend(
            f"memory://harness-{uuid.uuid4().hex}", cache_bytes=0, ambient=self._clock
        )
        self._settings = settings
        self.progress: EpochProgress | None = None
        """The progress of the last epoch."""
        self.commits: list[OperatorCommit] = []
        """Every call of `on_commit`, in order, also those that raised."""
        self._crashes_after_commit = False
        self._driver = self._start_driver()
        if initial and self._driver.parent is None:
            self._fill(initial)

    @property
    def parallelism(self) -> int:
        """The number of subtasks."""
        return self._parallelism

    def epoch(
        self,
        rows: Rows = (),
        *,
        left: Rows = (),
        right: Rows = (),
        watermark: EventTimeLike | None = None,
        processing_time: EventTimeLike | None = None,
    ) -> list[dict[str, Any]]:
        """Run one epoch over rows, and return what the operator yields, as dicts.

        `watermark` is what `on_watermark` sees in this epoch; the default is that of the previous
        epoch. `processing_time` is what `ctx.processing_time` is in this epoch and in later ones that are not
        given another; the default is the time of day. Two-input operators take `left` and `right`.
        """
        self._set_clock(processing_time)
        return _dicts(self._run(_inputs(rows, left, right), watermark))

    def epoch_table(
        self,
        rows: Rows = (),
        *,
        left: Rows = (),
        right: Rows = (),
        watermark: EventTimeLike | None = None,
        processing_time: EventTimeLike | None = None,
    ) -> pa.Table:
        """Like `epoch`, with the output as an Arrow table."""
        self._set_clock(processing_time)
        return self._run(_inputs(rows, left, right), watermark)

    def drain(
        self,
        rows: Rows = (),
        *,
        watermark: EventTimeLike | None = None,
        processing_time: EventTimeLike | None = None,
    ) -> list[dict[str, Any]]:
        """Run the last epoch of the stream, in which `on_close` is called, like `query.stop(drain=True)`.

        The state stays readable. The job is finished: further epochs are refused until it is reopened.
        """
        self._set_clock(processing_time)
        return _dicts(self._run(_inputs(rows, (), ()), watermark, Ending.END_OF_STREAM))

    def reopen(self) -> None:
        """Start a job that was drained again, like `pipeline.start(reopen=True)`."""
        self._driver.stop()
        self._driver = self._start_driver(reopen=True)

    def pause(self) -> None:
        """Stop and start again, like `query.stop(finish_files=True)` and a new run of the program.

        The epoch that finishes the files of sinks calls nothing of the operator.
        """
        newest = self._driver.parent
        if newest is None:
            return
        # The watermark that the operator has seen: the plan has that of the epoch before.
        self._run(_inputs((), (), ()), newest.sources[0].watermark_us, Ending.FINISH_FILES)
        self.restart()

    def crash(
        self, rows: Rows = (), *, left: Rows = (), right: Rows = (), watermark: EventTimeLike | None = None
    ) -> None:
        """Run an epoch over rows, crash before it is published, and restart."""
        plan = with_watermark(self._driver.plan(), watermark)
        list(self._subtasks(plan, _inputs(rows, left, right)))
        self.restart()

    def crash_in_commit(
        self, rows: Rows = (), *, left: Rows = (), right: Rows = (), watermark: EventTimeLike | None = None
    ) -> None:
        """Run and publish an epoch, crash after `on_commit`, and restart, which calls it again."""
        self._crashes_after_commit = True
        try:
            self._run(_inputs(rows, left, right), watermark)
        except SimulatedCrash:
            self.restart()
        else:
            raise InvalidInputError(
                "the epoch has nothing to commit, and on_commit was not called",
                object_name=type(self._operator).__name__,
                action="pass rows for which the operator calls set_commit_data, or use crash",
            )
        finally:
            self._crashes_after_commit = False

    def restart(self, operator: Operator | None = None) -> None:
        """Stop and start again, possibly with a newer version of the operator."""
        self._operator = operator or self._operator
        self._driver.stop()
        self._driver = self._start_driver()

    def rescale(self, parallelism: int) -> None:
        """Restart with another number of subtasks."""
        self._parallelism = parallelism
        self.restart()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What a state table holds in the last published epoch, as dicts in no particular order.

        Entries of a `GlobalKeyedTable` are `{"key": …, "value": …}`.
        """
        declared = self._operator.tables().get(table)
        # Every subtask has all rows of a replicated table.
        is_replicated = declared is not None and declared.table_type.is_replicated
        readers = 1 if is_replicated else self._parallelism
        name = table if declared is None else declared.name
        return [row for index in range(readers) for row in self._view(name, index).to_pylist()]

    def _fill(self, initial: Mapping[str, Rows]) -> None:
        """Run the epoch that fills tables, like `stream.apply(…, initial=…)`."""
        tables = self._operator.tables()
        named = {initial_input(OPERATOR_ID, tables[name].name): rows for name, rows in initial.items()}
        self._run({name: table_of(rows) for name, rows in named.items()}, None, Ending.FILL)

    def _set_clock(self, time: EventTimeLike | None) -> None:
        if time is None:
            return
        if self._clock is None:
            raise InvalidInputError(
                "the clock of a harness with a backend of your own is that of the backend",
                found=f"processing_time={time!r}",
                action="give the backend an ambient whose clock you set, or leave out backend=",
            )
        parent = self._driver.parent
        self._clock.set(time, 0 if parent is None else parent.finished_ms)

    def _view(self, table: str, index: int) -> Any:
        task = TaskInfo("harness", OPERATOR_ID, index, self._parallelism)
        parent = self._driver.parent
        tables = state_tables(self._operator)
        manager = TableManager.load(task, tables, self._backend, None if parent is None else parent.epoch)
        return manager.view(table)

    def _start_driver(self, **options: bool) -> JobDriver:
        driver = JobDriver(
            self._backend,
            "harness",
            {OPERATOR_ID: self._parallelism},
            self._committers(),
            timed_sources=(_SOURCE,),
            settings=self._settings,
            upkeep_executor=_Inline(),
        )
        driver.start(**options)
        return driver

    def _committers(self) -> dict[str, OperatorCommitter]:
        if not has_on_commit(self._operator, f"operator {type(self._operator).__name__}"):
            return {}
        on_commit = operator_committer(self._operator).on_commit

        def call(commit: OperatorCommit) -> None:
            self.commits.append(commit)
            on_commit(commit)
            if self._crashes_after_commit:
                self._crashes_after_commit = False
                raise SimulatedCrash("after on_commit")

        return {OPERATOR_ID: OperatorCommitter(call)}

    def _run(
        self,
        inputs: Mapping[str, pa.Table],
        watermark: EventTimeLike | None,
        ending: Ending = Ending.CONTINUE,
    ) -> pa.Table:
        output: list[pa.RecordBatch] = []

        def run(plan: EpochPlan) -> EpochResult:
            output.clear()
            plan = with_watermark(plan, watermark)
            reports = []
            for subtask in self._subtasks(plan, inputs):
                output.extend(subtask.output)
                reports.append(subtask.report)
            reached = SourceOffsets(_SOURCE, "", plan.watermark_us)
            count = sum(table.num_rows for table in inputs.values())
            return EpochResult(tuple(reports), (reached,), rows={_SOURCE: count})

        outcome = self._driver.run_epoch(self._driver.next_epoch(), run, ending)
        if not isinstance(outcome, EpochFinished):
            raise ConflictError(
                "another driver published an epoch of the harness's job",
                action="give each harness a backend of its own",
            )
        self.progress = outcome.progress
        return pa.Table.from_batches(output, schema=self._operator.output_schema or pa.schema([]))

    def _subtasks(self, plan: EpochPlan, inputs: Mapping[str, pa.Table]) -> Iterator[_Ran]:
        link = ChainLink(OperatorStep(OPERATOR_ID, self._operator), exported=True)
        stage = StagePlan("harness", self._parallelism, (link,))
        routed = {name: self._route(table) for name, table in inputs.items() if table.num_rows}
        for index in range(self._parallelism):
            subtask = SubtaskRun(stage, index, plan, self._backend)
            batches = [(name, batch) for name, parts in routed.items() for batch in parts[index].to_batches()]
            output = [batch for _, batch in subtask.run(batches)]
            yield _Ran(output, subtask.report)

    def _route(self, table: pa.Table) -> list[pa.Table]:
        """The rows of each subtask, as Spark would route them."""
        if not self._key:
            return [table.slice(0, 0)] * (self._parallelism - 1) + [table]
        missing = [name for name in self._key if name not in table.column_names]
        if missing:
            raise InvalidInputError(
                "rows have no such key column",
                found=", ".join(table.column_names),
                expected=", ".join(missing),
            )
        table = with_key_types(table, self._operator, self._key)
        owners = subtasks_of(routing_keys([table[name] for name in self._key]), self._parallelism)
        return [table.filter(pa.array(owners == index)) for index in range(self._parallelism)]


@dataclass(frozen=True)
class _Ran:
    output: list[pa.RecordBatch]
    report: SubtaskReport


class _Inline(Executor):
    """Runs work immediately, so that tests are deterministic."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _key_of(operator: Operator, key: Sequence[str] | str | None) -> tuple[str, ...]:
    if key is not None:
        return (key,) if isinstance(key, str) else tuple(key)
    config = keyed_config(operator)
    return () if config is None else config.routing_columns


def with_key_types(table: pa.Table, operator: Operator, key: Sequence[str]) -> pa.Table:
    """Rows with key columns of the types that the operator's tables declare, as Spark's rows have.

    Python has one class for all integers, and `int` and `bigint` hash differently.
    """
    types = _key_types(operator)
    if len(types) != len(key):
        return table
    for name, type_ in zip(key, types, strict=True):
        field = pa.field(name, type_)
        if _is_number(table[name].type) and _is_number(type_):
            (column,) = conform_columns(table, [field], "key of rows")
            table = table.set_column(table.schema.get_field_index(name), field, column)
    return table


def _key_types(operator: Operator) -> list[pa.DataType]:
    config = keyed_config(operator)
    if config is None:
        return []
    types = {column.name: arrow_type(column.type) for column in config.key_columns}
    return [types[name] for name in config.routing_columns]


def keyed_config(operator: Operator) -> TableConfig | None:
    """The first table that is partitioned by key; all others are keyed by the same types."""
    tables = state_tables(operator)
    return next((table.config for table in tables if not table.table_type.is_replicated), None)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _dicts(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _inputs(rows: Rows, left: Rows, right: Rows) -> dict[str, pa.Table]:
    return {"": table_of(rows), "left": table_of(left), "right": table_of(right)}


def table_of(rows: Rows) -> pa.Table:
    """Rows as Arrow, with every column that some row has."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    dicts = list(rows)
    # Arrow would take the column names from the first row only.
    names = dict.fromkeys(name for row in dicts for name in row)
    return pa.table({name: [row.get(name) for row in dicts] for name in names})
