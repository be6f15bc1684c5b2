"""`ChainedJob`: an operator and a sink in one stage, run in this process by the driver of production.

For measuring what an epoch costs at any parallelism, without Spark: every request goes through one
store, so that it can be counted.
"""

from __future__ import annotations

import pyarrow as pa

from lakestate.coordinator.epoch_plan import EpochPlan, EpochResult, SubtaskReport
from lakestate.coordinator.epoch_progress import EpochFinished
from lakestate.coordinator.job_driver import DriverSettings, JobDriver
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.upkeep import Exporter
from lakestate.errors import ConflictError
from lakestate.observability.progress import EpochProgress
from lakestate.operators.operator import Operator
from lakestate.runtime.sink_step import SinkStep, sink_clean_up, sink_committer
from lakestate.runtime.steps import ChainLink, OperatorStep
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.sinks.sink import Sink
from lakestate.storage.parallel import InlineExecutor
from lakestate.tables.hashing.routing import routing_keys, subtasks_of

OPERATOR, SINK = "operator", "out"


class ChainedJob:
    """One job. Rows are routed by the column `key`; what the operator yields goes to the sink."""

    def __init__(
        self,
        operator: Operator,
        backend: ParquetBackend,
        *,
        key: str,
        parallelism: int,
        sink: Sink | None = None,
        settings: DriverSettings | None = None,
        job_id: str = "job",
        operator_id: str = OPERATOR,
        exporter: Exporter | None = None,
        muted: bool = False,
    ) -> None:
        self._key = key
        self.backend = backend
        self.parallelism = parallelism
        self.sink = sink
        self.settings = settings
        links = [ChainLink(OperatorStep(operator_id, operator))]
        sinks = {} if sink is None else {SINK: sink}
        if sink is not None:
            schema = operator.output_schema or pa.schema([])
            links.append(ChainLink(SinkStep(SINK, sink, schema), parent=0))
        self._stage = StagePlan("chain", parallelism, tuple(links))
        self.driver = JobDriver(
            backend,
            job_id,
            {link.step.step_id: parallelism for link in links},
            {name: sink_committer(each) for name, each in sinks.items()},
            settings=settings,
            clean_up=sink_clean_up(sinks, job_id),
            exporter=exporter,
            upkeep_executor=InlineExecutor(),
            muted=muted,
        )
        self.driver.start()

    def epoch(self, rows: pa.Table) -> EpochProgress:
        """Run, publish and commit one epoch, and the upkeep after it."""
        owners = subtasks_of(routing_keys([rows[self._key]]), self.parallelism)
        parts = [rows.filter(pa.array(owners == index)) for index in range(self.parallelism)]

        def run(plan: EpochPlan) -> EpochResult:
            return EpochResult(
                tuple(self._run_subtask(index, plan, part) for index, part in enumerate(parts))
            )

        outcome = self.driver.run_epoch(self.driver.next_epoch(), run)
        if not isinstance(outcome, EpochFinished):
            raise ConflictError(
                "another driver published an epoch of this job", action="give each job a backend of its own"
            )
        return outcome.progress

    def _run_subtask(self, index: int, plan: EpochPlan, rows: pa.Table) -> SubtaskReport:
        subtask = SubtaskRun(self._stage, index, plan.for_subtasks(), self.backend)
        batches = [("", batch) for batch in rows.to_batches() if batch.num_rows]
        for _ in subtask.run(batches):
            raise AssertionError("no step exports rows")
        # As it travels from a task to the driver.
        return SubtaskReport.decode(subtask.report.encode())
