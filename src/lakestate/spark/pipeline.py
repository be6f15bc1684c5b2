"""`Pipeline`: what users write. Builds the graph, checks it and starts it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.readwriter import DataStreamReader

from lakestate.config import StoreConfig, duration_us
from lakestate.coordinator.commit import JobCommitter, OperatorCommitter
from lakestate.coordinator.engine.batches import require_position
from lakestate.coordinator.job_clock import JobClock
from lakestate.coordinator.job_driver import DriverSettings, JobDriver
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.recover import refuse_finished_before_claim
from lakestate.coordinator.upkeep import Exporter
from lakestate.errors import InvalidInputError
from lakestate.inspection.exports import Export, keep_fresh
from lakestate.inspection.exports.fresh import check_exports
from lakestate.observability.console import with_progress
from lakestate.observability.listeners import Listener, check_listeners, tell_files
from lakestate.operators.operator import has_on_commit
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.key_ranges import require_parallelism
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.names import require_name
from lakestate.protocol.retention import RetentionPolicy
from lakestate.repair.going_back import go_back, open_epoch_to_continue
from lakestate.runtime.operator_commit import operator_committer
from lakestate.runtime.sink_step import output_claim, sink_clean_up, sink_committer, sink_take_over
from lakestate.sinks.output_owner import OutputClaim
from lakestate.sinks.sink import Sink
from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.dry_run import PipelineDryRun, dry_run_pipeline
from lakestate.spark.execution.code_check import check_code
from lakestate.spark.execution.compactor import SparkCompactor
from lakestate.spark.execution.compile import CompiledPipeline, compile_pipeline
from lakestate.spark.execution.work import SparkWork
from lakestate.spark.graph.checks import check_names, check_stored, check_types, tables_of
from lakestate.spark.graph.description import describe_graph
from lakestate.spark.graph.dropped import Dropped, resolve_dropped
from lakestate.spark.graph.nodes import Graph, Late, SinkNode, SourceNode, mute, sinks_in
from lakestate.spark.graph.schemas import Schemas
from lakestate.spark.kafka_source import check_topics
from lakestate.spark.query import PipelineQuery
from lakestate.spark.session import check_connector, check_session, check_speculation, load_stream
from lakestate.spark.stopping import StopOnSignal, Timeout, ending_of, timeout_seconds
from lakestate.spark.streams import Building, SourceStream
from lakestate.spark.triggers import require_trigger
from lakestate.tables.contract import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_log = logging.getLogger("lakestate.pipeline")


class Pipeline:
    """A job: sources, operators and sinks, with its state below a checkpoint URL.

    State is found again by `job_id` and by the ids of operators and sinks, so keep them stable.
    `checkpoint` is a URL or a local path, or a `ParquetBackend` if you need more settings. If no epoch has
    run for `idle`, and steps wait for time to pass, an epoch without rows runs; None switches that off.
    `exports` are copies of state tables that the job keeps fresh for other tools.

        class Count(ls.Operator):
            output = "user string, n bigint"
            counts = ls.KeyedTable(key="user string", value="n bigint")

            def process_batch(self, batch, ctx):
                rows = pa.table(batch).group_by("user").aggregate([([], "count_all")])
                before = ctx.counts.get(rows)["n"].fill_null(0)
                new = pa.table({"user": rows["user"], "n": pc.add(rows["count_all"], before)})
                ctx.counts.put(new)
                yield new

        events = spark.readStream.schema("user string, ts timestamp").json("/data/in")
        pipeline = ls.Pipeline("counts", "file:///data/checkpoints", parallelism=2)
        source = pipeline.source(events, name="events", event_time="ts", delay="10 seconds", late="drop")
        source.key_by("user").apply("count", Count()).sink("out", ls.ParquetSink("file:///data/out"))
        source.late_rows().sink("late", ls.ParquetSink("file:///data/late"))
        query = pipeline.start(trigger={"availableNow": True})
        query.awaitTermination()
        query.stop(finish_files=True)
    """

    def __init__(
        self,
        job_id: str,
        checkpoint: str | Path | StoreConfig | ParquetBackend,
        *,
        parallelism: int = 4,
        retention: RetentionPolicy | None = None,
        compaction: CompactionPolicy | None = CompactionPolicy(),  # noqa: B008
        cache_dir: str | Path | None = None,
        clock_tolerance: str | timedelta = "1 hour",
        idle: str | timedelta | None = "10 seconds",
        exports: Sequence[Export] = (),
    ) -> None:
        self._job_id = require_name("job", job_id)
        self._backend = (
            checkpoint
            if isinstance(checkpoint, ParquetBackend)
            else ParquetBackend(checkpoint, cache_dir=cache_dir)
        )
        self._parallelism = require_parallelism(parallelism)
        tolerance_ms = duration_us(clock_tolerance) // 1000
        self._settings = DriverSettings(retention or RetentionPolicy(), compaction, tolerance_ms)
        self._building = Building()
        self._graph = self._building.graph
        self._idle_us = None if idle is None else duration_us(idle)
        self._exports = tuple(exports)

    def __repr__(self) -> str:
        drawn = describe_graph(self._graph)
        return f"Pipeline({self._job_id!r}, {self._backend.url!r}, parallelism={self._parallelism}{drawn})"

    def source(
        self,
        frame: DataFrame | DataStreamReader,
        *,
        name: str = "source",
        event_time: str | None = None,
        delay: str | timedelta = "0 seconds",
        late: str | Late = Late.KEEP,
        file_paths: Sequence[str] = (),
        idle_after: str | timedelta | None = None,
    ) -> SourceStream:
        """Read a streaming DataFrame, or what a reader (`spark.readStream.format("kafka")…`) loads.

        If Spark lacks the connector that a reader names, the error says which one to install.

        With `event_time`, the name of a timestamp column, the source has a watermark: the latest
        time seen minus `delay`. Rows older than the job's watermark are counted as late, and with
        `late="drop"` they are left out. A source that has had no rows for `idle_after` while the job ran no
        longer holds the job's watermark back.

        `file_paths` is only for a file source whose input was moved: its earlier paths. Files that the
        source has read are remembered by path, and a path that is not the source's is refused.
        """
        if isinstance(frame, DataStreamReader):
            frame = load_stream(frame, name)
        if not frame.isStreaming:
            raise InvalidInputError(
                f"source {name} is not a streaming DataFrame", action="read it with spark.readStream"
            )
        idle_after_us = None if idle_after is None else duration_us(idle_after)
        if idle_after_us == 0 or (idle_after_us is not None and event_time is None):
            raise InvalidInputError(
                f"source {name} cannot be idle",
                found=f"idle_after={idle_after!r}" + ("" if event_time else " and no event_time"),
                expected="a source with event time, and a duration",
                action="leave idle_after out, or name the column with the event time",
            )
        delay_us, paths = duration_us(delay), tuple(file_paths)
        node = SourceNode(name, frame, event_time, delay_us, Late(late), paths, idle_after_us)
        return SourceStream(self._building, self._graph.add(node))

    def start(
        self,
        trigger: Mapping[str, Any] | None = None,
        *,
        listeners: Sequence[Listener] = (),
        drop: Collection[str] = (),
        spark_checkpoint: str | Path | None = None,
        reopen: bool = False,
        from_epoch: int | str | None = None,
        accept_visible_output: bool = False,
        take_over_output: bool = False,
        progress: bool | None = None,
        reset_clock: bool = False,
        unmute: bool = False,
    ) -> PipelineQuery:
        """Check the pipeline, take over the job, and continue after its newest epoch.

        With `from_epoch`, the number of an epoch or the name of a tag, it continues from there instead, once:
        a later start with the same `from_epoch` continues after the newest epoch. Output that became visible
        since is written again: VisibleOutputError says which, unless you pass `accept_visible_output`.

        `trigger` is Spark's: `{"processingTime": "10 seconds"}`, `{"availableNow": True}` or
        `{"once": True}`. `drop` names stored state that you give up: operators and sinks that are no
        longer in the pipeline, and tables that an operator no longer declares, as "operator.table".
        `spark_checkpoint` is a local directory in which Spark keeps its own logs while the query
        runs. They are a cache, rebuilt at every start. A job that was stopped with `drain=True` is finished,
        and starts again only with `reopen`: it continues with the state that its operators left.

        An output that another job with a copy of this state has marked as its own is refused. If the
        checkpoint was moved, and what ran at its old place never runs again, `take_over_output` replaces
        the mark.

        `reset_clock` lets the time of the job go back to that of this driver's clock, if an earlier driver's
        clock was ahead. Rows that had expired are removed, and the time to live of all others begins anew.

        A fork that is muted runs its operators, and drops what would go to sinks and to `on_commit`. With
        `unmute` it writes from the next epoch on, and does so at every later start.

        In a terminal or a notebook, the query shows a line about its newest epoch. `progress` switches
        it on or off; so does the environment variable `LAKESTATE_PROGRESS`, 1 or 0.
        """
        trigger = require_trigger(trigger)
        check_listeners(listeners)
        listeners = with_progress(listeners, progress)
        check_names(self._graph)
        check_exports(self._exports, self.declared_tables())
        session = self._graph.sources[0].frame.sparkSession
        check_session(session)
        check_connector(session, self._graph.sources)
        # Before the job is claimed: a pipeline that cannot run must not stop the driver that is running.
        stored = self._stored_epoch(from_epoch)
        is_muted = stored is not None and stored.is_muted and not unmute
        graph = mute(self._graph) if is_muted else self._graph
        if is_muted:
            _log.warning(
                "job %s is a muted fork: its sinks write nothing until start(unmute=True)", self._job_id
            )
        schemas = Schemas(session, graph)
        check_types(graph, schemas)
        if not reopen:
            refuse_finished_before_claim(stored, self._backend.objects(self._job_id))
        if not reset_clock:
            self._clock().check(stored)
        dropped = self._check_stored(stored, drop)
        pipeline = compile_pipeline(graph, schemas, self._parallelism, self._backend, dropped.tables)
        check_speculation(session, pipeline)
        check_topics(session, self._graph.sources)
        check_code(session, pipeline)
        claim = OutputClaim.TAKE_OVER if take_over_output else OutputClaim.OWN
        if stored is not None and not take_over_output:
            self._output_claim(graph, OutputClaim.LOOK)(stored.state_id)
        work = SparkWork(self._job_id)
        driver = self._driver(pipeline, listeners, claim, work, muted=is_muted)
        directory = SparkDirectory(None if spark_checkpoint is None else Path(spark_checkpoint), self._job_id)
        try:
            if from_epoch is not None:
                self._go_back(from_epoch, accept_visible_output=accept_visible_output)
            parent = driver.start(reopen=reopen, reset_clock=reset_clock)
            self._check_stored(parent, drop)
            return PipelineQuery(pipeline, driver, directory, trigger, listeners, work, self._idle_us)
        except BaseException:
            driver.stop()
            directory.remove()
            raise

    def dry_run(self, *, drop: Collection[str] = (), reopen: bool = False) -> PipelineDryRun:
        """Check what `start` with these arguments would check, and every migration, and tell all problems.

        Nothing is claimed, written or created, and a driver that runs the job is not disturbed. Data files
        of older state versions are read and migrated in this process, and a Spark job lets workers load the
        code.
        """
        return dry_run_pipeline(
            self._graph,
            self._job_id,
            self._parallelism,
            self._backend,
            drop,
            reopen=reopen,
            clock=self._clock(),
        )

    def run(
        self,
        trigger: Mapping[str, Any] | None = None,
        *,
        drain: bool = False,
        timeout: Timeout | None = None,
        **options: Any,
    ) -> StopOnSignal[PipelineQuery]:
        """Start the pipeline for a `with` block, which also handles SIGINT (Ctrl-C) and SIGTERM.

            with pipeline.run(trigger={"processingTime": "10 seconds"}) as query:
                query.awaitTermination()

        The first signal, or the end of the block, lets the running epoch finish and then finishes open
        files; a second signal cancels the epoch. An error in the block only stops the query. `drain`
        and `timeout` are those of `PipelineQuery.stop`; `trigger` and all other options those of `start`.
        """
        ending = ending_of(finish_files=True, drain=drain)
        return StopOnSignal(lambda: self.start(trigger, **options), ending, timeout_seconds(timeout))

    def _clock(self) -> JobClock:
        return JobClock(self._backend.ambient, self._settings.clock_tolerance_ms)

    def _stored_epoch(self, from_epoch: int | str | None) -> Manifest | None:
        """The epoch that the job continues from, as it is before the job is claimed."""
        if from_epoch is None:
            manifest = self._backend.newest_checkpoint(self._job_id)
        else:
            manifest = open_epoch_to_continue(self._backend.objects(self._job_id), from_epoch)
        if manifest is not None:
            require_position(manifest)
        return manifest

    def _go_back(self, to: int | str, *, accept_visible_output: bool) -> None:
        go_back(
            self._backend,
            self._job_id,
            to,
            sinks=self.sinks,
            committers=self.committers(),
            accept_visible_output=accept_visible_output,
        )

    def _driver(
        self,
        pipeline: CompiledPipeline,
        listeners: Sequence[Listener],
        claim: OutputClaim,
        work: SparkWork,
        *,
        muted: bool,
    ) -> JobDriver:
        sinks = sinks_in(pipeline.graph)
        return JobDriver(
            self._backend,
            self._job_id,
            pipeline.steps,
            self.committers(),
            timed_sources=[node.name for node in self._graph.sources if node.event_time is not None],
            idle_after_us={
                node.name: node.idle_after_us
                for node in self._graph.sources
                if node.idle_after_us is not None
            },
            settings=self._settings,
            compactor=self._compactor(pipeline.schemas, work),
            clean_up=sink_clean_up(sinks, self._job_id),
            claim_output=self._output_claim(pipeline.graph, claim),
            take_over=sink_take_over(sinks),
            tell_files=partial(tell_files, listeners),
            exporter=self._exporter(muted=muted),
            muted=muted,
        )

    @property
    def job_id(self) -> str:
        """The job that it runs."""
        return self._job_id

    @property
    def backend(self) -> ParquetBackend:
        """Where its state is."""
        return self._backend

    def declared_tables(self) -> dict[str, Sequence[Table]]:
        """The state tables of its operators and sinks, by id."""
        return {node.step_id: tables_of(node) for node in self._graph.steps}

    @property
    def sinks(self) -> dict[str, Sink]:
        """The sinks, by id."""
        return sinks_in(self._graph)

    def _output_claim(self, graph: Graph, claim: OutputClaim) -> Callable[[str], None]:
        return output_claim(sinks_in(graph), self._backend, self._job_id, claim)

    def committers(self) -> dict[str, JobCommitter | OperatorCommitter]:
        """Those of sinks and operators, in the order in which they were added."""
        found: dict[str, JobCommitter | OperatorCommitter] = {}
        for node in self._graph.steps:
            if isinstance(node, SinkNode):
                found[node.step_id] = sink_committer(node.sink)
            elif has_on_commit(node.operator, f"operator {node.step_id}"):
                found[node.step_id] = operator_committer(node.operator)
        return found

    def _exporter(self, *, muted: bool) -> Exporter | None:
        # Copies of tables are output, too: those of a muted fork would replace those of its parent.
        is_wanted = self._exports and not muted
        return keep_fresh(self._backend, self._job_id, self._exports) if is_wanted else None

    def _compactor(self, schemas: Schemas, work: SparkWork) -> SparkCompactor | None:
        policy = self._settings.compaction
        tables = self.declared_tables()
        return None if policy is None else SparkCompactor(schemas, self._backend, policy, tables, work)

    def _check_stored(self, manifest: Manifest | None, drop: Collection[str]) -> Dropped:
        if manifest is None:
            return resolve_dropped(drop, {}, {}, f"job {self._job_id}, which has no epoch,")
        return check_stored(self._graph, manifest, self._backend.objects(self._job_id), drop)
