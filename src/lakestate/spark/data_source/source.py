"""`format("lakestate")`: the file sink as a streaming data source of Spark.

Spark drives it in three kinds of processes. On the driver, a writer is created for every batch and
pickled. On executors, each task unpickles it and writes its partition. On the driver again, in another
process, the data source commits what the tasks reported. This module holds only Spark's protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import require_parallelism
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.registry import register_file_format, registered_formats
from lakestate.spark.data_source.commit import WrittenPartition, commit_batch, epoch_id
from lakestate.spark.data_source.job import BatchPlan, LatestTime, SinkJob, writer_name
from lakestate.spark.data_source.options import DataSourceOptions
from lakestate.spark.data_source.position import BatchPosition, is_published
from lakestate.spark.data_source.reading import (
    ChangeStreamReader,
    FilteringStateReader,
    ReadOptions,
    StateReader,
)
from lakestate.spark.data_source.reading.plan import spark_columns
from lakestate.spark.data_source.reading.reader import schema_of
from lakestate.spark.graph.partition_shuffle import shuffle_expressions
from lakestate.spark.graph.schemas import spark_ddl
from lakestate.spark.tasks.prompt_input import acknowledge_input
from lakestate.spark.versions.data_sources import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from lakestate.tables.arrow.schema import arrow_fields, columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

NAME = "lakestate"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `format("lakestate")` known to a session, with the file formats registered so far.

    Conditions of queries are pushed down if the session's `spark.sql.python.filterPushdown.enabled` is true.
    """
    pushes_filters = spark.conf.get(_PUSHDOWN, "false") == "true"
    spark.dataSource.register(_with_formats(registered_formats(), pushes_filters))


def write_stream(
    frame: DataFrame, *, shuffle_by_partition: int | None = None, **options: Any
) -> DataStreamWriter:
    """A Spark stream writer for this sink, with all options checked before the query starts.

    The same as `frame.writeStream.format("lakestate").options(…)`, except that Spark passes those options
    to the sink only with the first batch. With `shuffle_by_partition`, all rows of an output partition go to
    one of so many writers, so that few files are open: a data source cannot ask Spark for that.
    """
    text = {name: str(value) for name, value in options.items()}
    read = DataSourceOptions.of(text)
    _sink_job(text, frame.schema).open().check()
    if not frame.isStreaming:
        raise InvalidInputError("not a streaming DataFrame", action="read it with spark.readStream")
    if shuffle_by_partition is not None:
        partitioning = read.sink.partitioning
        together = shuffle_expressions(partitioning, frame.schema, read.event_time)
        frame = frame.repartition(
            require_parallelism(shuffle_by_partition), *[F.expr(each) for each in together]
        )
    register(frame.sparkSession)
    return frame.writeStream.format(NAME).options(**text)


class LakestateDataSource(DataSource):
    """State tables to read, and the sink that `df.writeStream.format("lakestate")` names."""

    formats: ClassVar[tuple[type[FileFormat], ...]] = ()
    """File formats that users registered."""

    @classmethod
    def name(cls) -> str:
        """The name to pass to `format`."""
        return NAME

    pushes_filters: ClassVar[bool] = False
    """Whether Spark passes conditions on: it refuses a reader that takes them unless it is told to."""

    def schema(self) -> str:
        """The columns of the state table, of its changes, or of a metadata table."""
        return spark_columns(schema_of(ReadOptions.of(self.options)))

    def reader(self, schema: StructType) -> StateReader:
        """The reader of one query."""
        kind = FilteringStateReader if self.pushes_filters else StateReader
        return kind(ReadOptions.of(self.options), _arrow_schema(schema))

    def streamReader(self, schema: StructType) -> ChangeStreamReader:  # noqa: N802
        """The reader of the changes of a state table."""
        return ChangeStreamReader(ReadOptions.of(self.options).require_changes(), _arrow_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: N802
        """The writer of one batch."""
        if overwrite:
            raise InvalidInputError(
                "visible files are never rewritten",
                found="output mode complete",
                expected="output mode append",
                action='use .outputMode("append"), or a foreachBatch that overwrites a table',
            )
        for each in self.formats:
            register_file_format(each)
        job = _sink_job(dict(self.options), schema)
        job.open().check()
        return BatchWriter(job)


@dataclass(frozen=True)
class WrittenMessage(WriterCommitMessage):
    """What a task reports to the driver."""

    data: bytes


class BatchWriter(DataSourceStreamArrowWriter):
    """Writes one batch. Spark creates a new one for every batch, and another one to commit it."""

    def __init__(self, job: SinkJob) -> None:
        self._job = job
        self._plan: BatchPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Plan the batch when its writer is pickled for the tasks, and only then.

        The writer that commits is never pickled, and needs no plan.
        """
        if self._plan is None:
            self._plan = self._job.open().plan_batch()
        return {"_job": self._job, "_plan": self._plan}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenMessage:
        """Write one partition, in a task."""
        assert self._plan is not None, "a writer is planned when it is pickled"
        acknowledge_input()
        job, plan = self._job.open(), self._plan
        partition, batch = _current_task()
        parent, state_id = epoch_id(plan.epoch.parent), plan.epoch.state_id
        name = writer_name(partition)
        if is_published(plan.reached, batch, job.state):
            skipped = sum(rows.num_rows for rows in iterator)
            done = WrittenPartition(batch, name, parent, state_id, rows=skipped, fence=plan.fence)
            return WrittenMessage(done.encode())
        latest = LatestTime(job.options.event_time)
        report = job.run_writer(name, plan.epoch, latest.watch(iterator))
        rows = sum(step.rows_in for step in report.metrics.values())
        done = WrittenPartition(
            batch, name, parent, state_id, report.encode(), latest.latest_us, rows, plan.fence
        )
        return WrittenMessage(done.encode())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the batch, on the driver."""
        reported = [message for message in messages if isinstance(message, WrittenMessage)]
        if len(reported) != len(messages):
            raise InvalidInputError(
                "Spark commits a batch with missing partitions",
                found=f"{len(reported)} partitions",
                expected=f"{len(messages)} partitions",
            )
        commit_batch(self._job.open(), [WrittenPartition.decode(each.data) for each in reported], batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: no epoch refers to what the tasks stored, and upkeep removes it later."""


def _with_formats(formats: tuple[type[FileFormat], ...], pushes_filters: bool) -> type[LakestateDataSource]:
    """The data source with formats and settings that it takes along.

    Spark sends the class to other processes, which import the package but do not run the user's program.
    A class that is made here is sent with everything in it.
    """
    if not formats and not pushes_filters:
        return LakestateDataSource
    taken = {"formats": formats, "pushes_filters": pushes_filters}
    return type(LakestateDataSource.__name__, (LakestateDataSource,), taken)


def _sink_job(options: Mapping[str, str], schema: StructType) -> SinkJob:
    return SinkJob.of(options, _arrow_schema(schema))


def _arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema(arrow_fields(columns_of(spark_ddl(schema), what="row")))


def _current_task() -> tuple[int, BatchPosition]:
    """The partition that this task writes, and the batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "rows are written inside a Spark task"
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        raise InvalidInputError(
            "the rows do not belong to a micro-batch",
            found=f"query {query_id}, batch {batch_id}",
            action="use a micro-batch trigger: processingTime or availableNow",
        )
    run_id = context.getLocalProperty(_RUN_ID) or ""
    return context.partitionId(), BatchPosition(query_id, int(batch_id), run_id)
