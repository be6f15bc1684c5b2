"""Runs the subtasks of one epoch on Spark, stage by stage, and returns what they report.

A stage that no other stage follows is one Spark job. The rows of other stages are persisted, and their
reports are read a second time after the last stage: if an attempt was replaced after its rows were used,
the epoch would mix two attempts, and it is discarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakestate.coordinator.engine.batches import EngineFiles, engine_files_without_batch
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult, SubtaskReport
from lakestate.coordinator.job_driver import SupersededAttemptError
from lakestate.observability.time_parts import BUILD, TASKS
from lakestate.protocol.metadata import NamedBytes, SourceOffsets
from lakestate.protocol.watermarks import source_watermark
from lakestate.spark.checkpoint.offsets import read_engine_files, source_offsets
from lakestate.spark.execution.arrow_batches import ArrowBatches
from lakestate.spark.execution.combining import Combining
from lakestate.spark.execution.compile import CompiledPipeline
from lakestate.spark.execution.frames import EpochFrames, collect_reports
from lakestate.spark.execution.run_times import RunTimes
from lakestate.spark.execution.source_paths import SourcePaths
from lakestate.spark.graph.nodes import SourceNode
from lakestate.spark.kafka_source import name_kafka_sources
from lakestate.spark.tasks.task_errors import error_from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class SparkBatch:
    """A batch as Spark delivers it."""

    frame: DataFrame
    batch_id: int


class EpochRunner:
    """Runs epochs of one pipeline. `directory` is Spark's checkpoint directory."""

    def __init__(self, pipeline: CompiledPipeline, directory: Path) -> None:
        self._pipeline = pipeline
        self._directory = directory
        self._combining = Combining(pipeline)
        self.arrow_batches = ArrowBatches()
        self.source_paths = SourcePaths(pipeline.graph.sources)
        """What file sources may have read."""

    def run(self, plan: EpochPlan, batch: SparkBatch | None) -> EpochResult:
        """Run the stages over a batch of Spark's, or over no rows if there is none."""
        times = RunTimes()
        if batch is not None:
            self.arrow_batches.apply(batch.frame.sparkSession)
        frames = EpochFrames(
            self._pipeline, plan, None if batch is None else batch.frame, self._combining.combined_first
        )
        try:
            reports = self._reports(plan, frames, times)
            observed = frames.counts()
            times.lap(TASKS)
        except (PySparkException, Py4JError) as failure:
            kafka = name_kafka_sources(self._pipeline.graph.sources)
            raise error_from_spark(failure, kafka=kafka) from failure
        finally:
            frames.release()
        files = self._engine_files(plan, batch)
        rows = self._rows(reports, observed)
        self._combining.learn(reports, sum(rows.values()))
        self.arrow_batches.learn(reports)
        times.lap(BUILD)
        return EpochResult(
            reports=tuple(reports),
            sources=self._sources(plan, files.files, observed),
            engine_files=files.files,
            engine_logs=files.logs,
            rows=rows,
            late_rows={
                name: int(seen["late_rows"]) for name, seen in observed.items() if "late_rows" in seen
            },
            parts_ms=times.parts_ms,
        )

    def _reports(self, plan: EpochPlan, frames: EpochFrames, times: RunTimes) -> list[SubtaskReport]:
        match plan.ending:
            case Ending.FINISH_FILES:
                return self._finish_files(frames)
            case Ending.FILL:
                return self._fill_tables(frames)
            case _:
                return self._run_stages(frames, times)

    def _fill_tables(self, frames: EpochFrames) -> list[SubtaskReport]:
        """Run every stage over its initial state, without calling a transform or an operator."""
        reports = []
        for stage in self._pipeline.stages:
            output = frames.output_of_initial_state(stage)
            found = [] if output is None else collect_reports(output)
            # Spark runs no task over rows that it knows to be none.
            reports += found or collect_reports(frames.output_of_no_rows(stage))
        return [SubtaskReport.decode(data) for data in reports]

    def _finish_files(self, frames: EpochFrames) -> list[SubtaskReport]:
        """Run every stage over no rows, without calling a transform: it could make rows of none."""
        outputs = [frames.output_of_no_rows(stage) for stage in self._pipeline.stages]
        return [SubtaskReport.decode(data) for output in outputs for data in collect_reports(output)]

    def _run_stages(self, frames: EpochFrames, times: RunTimes) -> list[SubtaskReport]:
        reports: list[SubtaskReport] = []
        kept = []
        for stage in self._pipeline.stages:
            output = frames.output(stage)
            times.lap(BUILD)
            found = collect_reports(output)
            if not found:
                output = frames.output_of_no_rows(stage)
                found = collect_reports(output)
            of_stage = [SubtaskReport.decode(data) for data in found]
            times.lap_job(of_stage)
            reports += of_stage
            if stage.exports:
                kept.append((stage.stage.name, output, sorted(found)))
        for name, output, found in kept:
            if sorted(collect_reports(output)) != found:
                raise SupersededAttemptError(
                    "subtasks ran again after their rows had been used", object_name=f"stage {name}"
                )
        return reports

    def _engine_files(self, plan: EpochPlan, batch: SparkBatch | None) -> EngineFiles:
        if batch is None:
            return engine_files_without_batch(plan.parent, plan.epoch)
        return read_engine_files(
            self._directory, plan.epoch, plan.parent, self.source_paths.check, batch=batch.batch_id
        )

    def _sources(
        self, plan: EpochPlan, files: tuple[NamedBytes, ...], observed: dict[str, dict[str, object]]
    ) -> tuple[SourceOffsets, ...]:
        sources = self._pipeline.graph.sources
        offsets = source_offsets(files, plan.epoch, len(sources))
        before = {} if plan.parent is None else {item.source: item for item in plan.parent.sources}
        return tuple(
            SourceOffsets(
                node.name,
                read,
                _watermark_us(node, before.get(node.name), observed.get(node.name, {})),
                _rows_at_us(node, before.get(node.name), observed.get(node.name, {}), plan),
            )
            for node, read in zip(sources, offsets, strict=True)
        )

    def _rows(self, reports: list[SubtaskReport], observed: dict[str, dict[str, object]]) -> dict[str, int]:
        """Rows read from each source. For a single source without event time, the first stage counts them.

        Nothing is observed in an epoch without a batch.
        """
        rows = {name: int(str(seen["rows"])) for name, seen in observed.items()}
        sources = self._pipeline.graph.sources
        if len(sources) == 1 and sources[0].name not in rows:
            first = self._pipeline.stages[0].stage
            step = first.steps[0].step_id
            rows[sources[0].name] = sum(
                report.metrics[step].rows_in for report in reports if report.stage == first.name
            )
        return rows


def _watermark_us(node: SourceNode, before: SourceOffsets | None, observed: dict[str, object]) -> int | None:
    if node.event_time is None:
        return None
    latest = observed.get("latest_us")
    previous_us = None if before is None else before.watermark_us
    return source_watermark(previous_us, None if latest is None else int(str(latest)), node.delay_us)


def _rows_at_us(
    node: SourceNode, before: SourceOffsets | None, observed: dict[str, object], plan: EpochPlan
) -> int | None:
    """When a source with event time last had rows, or began to be read."""
    if node.event_time is None:
        return None
    if before is None or before.rows_at_us is None or int(str(observed.get("rows", 0))):
        return plan.processing_time_us
    # The time of a job may have been set back.
    return min(before.rows_at_us, plan.processing_time_us)
