"""`Pipeline.dry_run`: everything that would keep a pipeline from starting, in one report.

Reads the newest epoch, and every data file of an older state version. Nothing is claimed or written: a driver
that runs the job is not disturbed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lakestate.coordinator.commit import require_committers
from lakestate.coordinator.engine.logs import read_logs
from lakestate.coordinator.job_clock import JobClock
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.recover import refuse_finished_before_claim
from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError, LakestateError
from lakestate.job.objects import JobObjects
from lakestate.operators.operator import has_on_commit
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.spark.checkpoint.offsets import files_to_rebuild
from lakestate.spark.execution.code_check import check_code
from lakestate.spark.execution.compile import compile_pipeline
from lakestate.spark.execution.source_paths import SourcePaths
from lakestate.spark.graph.checks import (
    check_names,
    check_stored_operators,
    check_stored_sources,
    names_of,
    stored_declarations,
    tables_of,
    try_types,
)
from lakestate.spark.graph.dropped import Dropped, resolve_dropped
from lakestate.spark.graph.nodes import ApplyNode, Graph
from lakestate.spark.graph.problems import report_problems
from lakestate.spark.graph.schemas import Schemas
from lakestate.spark.kafka_source import check_topics
from lakestate.spark.session import check_connector, check_session, check_speculation
from lakestate.tables.dry_run import NOT_DECLARED, DryRunProblem, DryRunReport, dry_run


@dataclass(frozen=True, slots=True)
class PipelineDryRun:
    """What a dry run of a pipeline has found.

    >>> print(PipelineDryRun("shop", Epoch(7)))
    job shop can start after epoch 7
    >>> print(PipelineDryRun("shop", None, (InvalidInputError("unknown trigger"),)))
    job shop cannot start: 1 problem
      1. unknown trigger [invalid_input]
    """

    job_id: str
    epoch: Epoch | None
    """The newest epoch, after which the job would continue; None if there is none, or it cannot be read."""
    problems: tuple[LakestateError, ...] = ()
    """Everything that would keep the job from starting, each problem once."""
    checked_files: int = 0
    """Data files of older state versions that were read."""
    migrated_rows: int = 0
    """Rows that were brought to the declared versions, and discarded."""

    @property
    def is_clean(self) -> bool:
        """True if nothing was found."""
        return not self.problems

    def raise_if_any(self) -> None:
        """Raise the problem that was found, or one error that tells all of them."""
        if len(self.problems) == 1:
            raise self.problems[0]
        if self.problems:
            raise InvalidInputError(str(self), action="solve all of them")

    def __str__(self) -> str:
        if self.problems:
            count = f"{len(self.problems)} problem{'s' if len(self.problems) > 1 else ''}"
            lines = [f"  {number}. {problem}" for number, problem in enumerate(self.problems, 1)]
            return "\n".join([f"job {self.job_id} cannot start: {count}", *lines])
        where = "from the beginning" if self.epoch is None else f"after epoch {self.epoch}"
        migrated = f"; {self.migrated_rows} rows in {self.checked_files} files of older versions migrate"
        return f"job {self.job_id} can start {where}{migrated if self.checked_files else ''}"


def dry_run_pipeline(
    graph: Graph,
    job_id: str,
    parallelism: int,
    backend: ParquetBackend,
    drop: Collection[str],
    *,
    reopen: bool,
    clock: JobClock,
) -> PipelineDryRun:
    """Check sources, operators, sinks, stored state and migrations."""
    found = _Findings()
    check_names(graph, found.add)
    schemas = _try_graph(graph, found)
    state = _StoredState(graph, job_id, backend.objects(job_id), drop)
    manifest: Manifest | None = None
    with report_problems(found.add):
        manifest = backend.newest_checkpoint(job_id)
        if not reopen:
            refuse_finished_before_claim(manifest, state.objects)
    with report_problems(found.add):
        clock.check(manifest)
    dropped = state.resolve_drop(manifest, found)
    if manifest is not None:
        state.check(manifest, dropped, found)
    if schemas is not None and not found.problems:
        with report_problems(found.add):
            _try_code(graph, schemas, parallelism, backend, dropped)
    return PipelineDryRun(
        job_id,
        None if manifest is None else manifest.epoch,
        tuple(found.problems.values()),
        found.checked_files,
        found.migrated_rows,
    )


@dataclass
class _Findings:
    """A report while it is being written."""

    problems: dict[str, LakestateError] = field(default_factory=dict)
    checked_files: int = 0
    migrated_rows: int = 0

    def add(self, problem: LakestateError) -> None:
        self.problems.setdefault(str(problem), problem)

    def add_tables(self, step: str, report: DryRunReport) -> None:
        self.checked_files += report.checked_files
        self.migrated_rows += report.migrated_rows
        for problem in report.problems:
            self.add(_table_problem(step, problem))


def _try_graph(graph: Graph, found: _Findings) -> Schemas | None:
    """The columns of the graph as far as they are known; None if there is no session to ask."""
    if not graph.sources:
        return None
    session = graph.sources[0].frame.sparkSession
    before = len(found.problems)
    with report_problems(found.add):
        check_session(session)
        check_connector(session, graph.sources)
    if len(found.problems) > before:
        return None
    with report_problems(found.add):
        check_topics(session, graph.sources)
    schemas = Schemas(session, graph, found.add)
    try_types(graph, schemas, found.add)
    return schemas


@dataclass(frozen=True)
class _StoredState:
    """The newest epoch of a job, compared with its pipeline."""

    graph: Graph
    job_id: str
    objects: JobObjects
    drop: Collection[str]

    def resolve_drop(self, manifest: Manifest | None, found: _Findings) -> Dropped:
        """What `drop` means, without the names that mean nothing."""
        names = list(self.drop)
        where = f"job {self.job_id}, which has no epoch,"
        stored: dict[str, list[str]] = {}
        declared = {node.step_id: tables_of(node) for node in self.graph.steps}
        if manifest is not None and names:
            where = f"epoch {manifest.epoch} of job {self.job_id}"
            try:
                stored = names_of(stored_declarations(manifest, self.objects, declared.keys()))
            except CorruptionError:
                # Told below, for each operator.
                return Dropped()
        operators: set[str] = set()
        tables: dict[str, tuple[str, ...]] = {}
        for name in [self.drop] if isinstance(self.drop, str) else [[name] for name in names]:
            with report_problems(found.add):
                one = resolve_dropped(name, stored, names_of(declared), where)
                operators |= one.operators
                for step, dropped in one.tables.items():
                    tables[step] = (*tables.get(step, ()), *dropped)
        return Dropped(frozenset(operators), tables)

    def check(self, manifest: Manifest, dropped: Dropped, found: _Findings) -> None:
        """Compare sources, operators and tables; try every migration."""
        with report_problems(found.add):
            check_stored_sources(self.graph, manifest)
            files = (*manifest.engine_files, *read_logs(self.objects, manifest))
            files_to_rebuild(files, manifest.epoch, SourcePaths(self.graph.sources).check)
        with report_problems(found.add):
            check_stored_operators(self.graph, manifest, dropped)
        with report_problems(found.add):
            if not self.objects.is_marked_committed(manifest.epoch):
                require_committers(manifest, self._committers())
        for node in self.graph.steps:
            if manifest.operator(node.step_id) is not None:
                with report_problems(found.add):
                    tried = dry_run(
                        tables_of(node),
                        manifest,
                        node.step_id,
                        self.objects,
                        drop=dropped.tables.get(node.step_id, ()),
                    )
                    found.add_tables(node.step_id, tried)

    def _committers(self) -> list[str]:
        return [
            node.step_id
            for node in self.graph.steps
            if not isinstance(node, ApplyNode) or has_on_commit(node.operator, f"operator {node.step_id}")
        ]


def _table_problem(step: str, problem: DryRunProblem) -> IncompatibleStateError:
    table = "all tables" if problem.table is None else f"table {problem.table}"
    return IncompatibleStateError(
        "stored state cannot be used",
        object_name=f"operator {step}, {table}, {problem.object_name}",
        found=problem.reason,
        action=f"declare it, or give up its state with drop={[f'{step}.{problem.table}']}"
        if problem.reason == NOT_DECLARED
        else None,
    )


def _try_code(
    graph: Graph, schemas: Schemas, parallelism: int, backend: ParquetBackend, dropped: Dropped
) -> None:
    """Send the code of all stages to workers, which load it."""
    pipeline = compile_pipeline(graph, schemas, parallelism, backend, dropped.tables)
    check_speculation(schemas.session, pipeline)
    check_code(schemas.session, pipeline)
