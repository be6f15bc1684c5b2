"""`DeltaSink`: a Delta table, appended to or kept by key, each epoch exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.config import StoreConfig
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.delta.features import check_features
from lakestate.sinks.delta.files import DeltaFiles
from lakestate.sinks.delta.library import require_deltalake, storage_options
from lakestate.sinks.delta.table import TableFacts, add_columns, create_table, load_table, new_table_schema
from lakestate.sinks.delta.types import file_schema, new_columns
from lakestate.sinks.description import describe_sink
from lakestate.sinks.files.settings import FileSinkSettings
from lakestate.sinks.files.sink import FileSink, file_sink_tables
from lakestate.sinks.formats.parquet.format import ParquetFormat, ParquetSettings
from lakestate.sinks.formats.row_schema import without_columns
from lakestate.sinks.keyed_rows import key_columns, kinds_taken, require_key
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.partitioning.paths import check_partition_type
from lakestate.sinks.rolling import Roll
from lakestate.sinks.sink import EarlierAttempts, Sink, SinkCommitter, SinkContext, SinkWriter
from lakestate.sinks.table_format.data_files import TableFiles, TableFilesWriter
from lakestate.tables.contract import Table as StateTable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from lakestate.sinks.delta.epoch_log import EpochLog


@dataclass(frozen=True, repr=False)
class DeltaSink(ParquetSettings, FileSinkSettings, Sink):
    """Writes rows to a Delta table, each epoch in one commit that also records the epoch.

    Without a `key`, rows are appended, in files that stay open across epochs. With one, a row replaces the
    row of its key by a merge in every epoch, and streams of updates and of changes are taken; changes
    delete rows, too.

    The location is a URL or a local path. With `create` a table that does not exist is created from the
    columns of the stream, partitioned by the columns `partition_by`. With `evolve` columns that only the
    stream has are added to the table.

    >>> DeltaSink("s3://bucket/orders", partition_by=["country"], evolve=True)
    DeltaSink('s3://bucket/orders', partition_by=('country',), evolve=True)
    """

    url: str
    _: KW_ONLY
    key: Sequence[str] = ()
    create: bool = True
    partition_by: Sequence[str] = ()
    evolve: bool = False
    """Add columns that the table lacks, when the job starts."""
    drop_event_time: bool = False
    """Leave the event-time column out: the table need not have it."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of a table that is created."""
    commit_attempts_max: int = 20
    """How often a commit is tried, if other writers are first."""

    def __post_init__(self) -> None:
        by = self.partition_by
        object.__setattr__(self, "partition_by", (by,) if isinstance(by, str) else tuple(by))
        object.__setattr__(self, "key", key_columns(self.key, self.url))
        super().__post_init__()
        object.__setattr__(self, "url", self.store_config.url)
        storage_options(self.store_config)
        self._check_roll()
        self.file_sink()
        if self.commit_attempts_max < 1:
            raise InvalidInputError("a commit must be tried once", found=self.commit_attempts_max)

    def __repr__(self) -> str:
        return describe_sink(self, "url")

    @property
    def takes(self) -> tuple[RowKind, ...]:  # type: ignore[override]
        """Final rows; with a key also updates and changes."""
        return kinds_taken(self.key)

    def for_stream(self, kind: StreamKind, who: str) -> Sink:
        """The sink for rows of a stream. Refuses updates without a key, or by another key."""
        require_key(self.key, kind, who)
        if not self.key:
            return self
        from lakestate.sinks.delta.upserts import DeltaUpserts

        return DeltaUpserts(self, kind)

    def tables(self) -> Sequence[StateTable]:
        """The open files, and what each epoch has to commit."""
        if self.key:
            raise InvalidInputError(
                "a Delta sink with a key keeps no files open",
                object_name=self.url,
                action="use what for_stream returns, as pipelines do",
            )
        return file_sink_tables()

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows that do not fit into the table. It is created, or gets columns, if that is asked."""
        # Sent to the subtasks with the sink, so that they need not read the table.
        object.__setattr__(self, "_facts", self.prepare_table(schema, event_time))

    def dry_run(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse what `check` refuses. The table is neither created nor changed."""
        self.try_table(schema, event_time)

    def prepare_table(self, schema: pa.Schema, event_time: str | None) -> TableFacts:
        """The table for such rows, created or extended if that is asked. Refuses what does not fit."""
        require_deltalake()
        rows = self.written_columns(schema, event_time)
        try:
            table = self.load_table()
        except NotFoundError:
            if not self.create:
                raise
            table = create_table(self.store_config, rows, self.partition_by, self.properties)
        facts, added = self._compare(rows, table)
        if not len(added):
            return facts
        add_columns(self.store_config, table, added)
        return TableFacts.of(self.load_table(), self.url)

    def try_table(self, schema: pa.Schema, event_time: str | None) -> TableFacts | None:
        """The table for such rows as it is; None if a start would create it. Refuses what does not fit."""
        require_deltalake()
        rows = self.written_columns(schema, event_time)
        try:
            table = self.load_table()
        except NotFoundError:
            if not self.create:
                raise
            new_table_schema(self.url, rows, self.partition_by)
            return None
        return self._compare(rows, table)[0]

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch, in the table's types as the start found them."""
        facts = getattr(self, "_facts", None) or TableFacts.of(self.load_table(), self.url)
        return TableFilesWriter(self._files_for(context.schema, context.event_time, facts), facts, context)

    def committer(self) -> SinkCommitter:
        """The committer, for the driver."""
        require_deltalake()
        from lakestate.sinks.delta.committer import DeltaCommitter

        return DeltaCommitter(self)

    def clear_earlier_attempts(self, earlier: EarlierAttempts) -> None:
        """Remove hidden files of failed drivers."""
        self.file_sink().clear_earlier_attempts(earlier)

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Own the folder of the table, for the files of this job."""
        self.file_sink().claim_output(owner, claim)

    def file_sink(self) -> FileSink:
        """What writes and completes the table's data files. It does not read the table."""
        return TableFiles(self.url, format=ParquetFormat.of(self), **self.file_sink_settings())

    def load_table(self) -> DeltaTable:
        """The table as it is now. Raises NotFoundError."""
        require_deltalake()
        return load_table(self.store_config)

    @cached_property
    def epoch_log(self) -> EpochLog:
        """The table as the driver's committers know it: kept, so that an epoch reads only what is new."""
        from lakestate.sinks.delta.epoch_log import EpochLog

        return EpochLog(self)

    @property
    def store_config(self) -> StoreConfig:
        """Where the table is, and how to reach it."""
        return StoreConfig(self.url, self.options or {}, self.retry)

    def __getstate__(self) -> dict[str, object]:
        """Without the table, which each process reads for itself."""
        return {name: value for name, value in self.__dict__.items() if name != "epoch_log"}

    def _check_roll(self) -> None:
        if self.key and (self.roll != Roll() or self.snapshot_open_files):
            raise InvalidInputError(
                "with a key no file stays open: the rows of an epoch are merged when it is published",
                object_name=self.url,
                found="roll or snapshot_open_files",
                action="leave it out; fewer and larger epochs make fewer and larger files",
            )
        if self.roll.past_watermark is not None:
            raise InvalidInputError(
                "the files of a Delta table are not rolled by watermark: its partitions are columns",
                object_name=self.url,
                action="roll by interval or inactivity",
            )

    def _files_for(self, rows: pa.Schema, event_time: str | None, facts: TableFacts) -> DeltaFiles:
        columns = file_schema(self.written_columns(rows, event_time), facts.schema)
        return DeltaFiles(
            self.url,
            format=ParquetFormat.of(self),
            **self.file_sink_settings(),
            facts=facts,
            columns=columns,
        )

    def _compare(self, rows: pa.Schema, table: DeltaTable) -> tuple[TableFacts, pa.Schema]:
        """The table, and the columns that it lacks. Refuses what the sink cannot write."""
        check_features(table, self.url)
        facts = TableFacts.of(table, self.url)
        added = new_columns(rows, facts.schema) if self.evolve else pa.schema([])
        self._check_fits(rows, facts, added)
        return facts, added

    def _check_fits(self, rows: pa.Schema, facts: TableFacts, added: pa.Schema) -> None:
        """Refuse rows that do not fit into the table once it has the added columns."""
        if self.partition_by and tuple(self.partition_by) != facts.partition_by:
            raise InvalidInputError(
                "the table is partitioned by other columns",
                object_name=self.url,
                found=", ".join(facts.partition_by) or "no column",
                expected=", ".join(self.partition_by),
                action="leave partition_by out to use the table's, or write to another table",
            )
        columns = file_schema(rows, pa.schema([*facts.schema, *added]))
        for name in facts.partition_by:
            if name not in columns.names:
                raise InvalidInputError(
                    "rows lack a column that the table is partitioned by",
                    object_name=f"{self.url}, column {name}",
                    found=", ".join(rows.names),
                    action="add it before the sink",
                )
            check_partition_type(name, columns.field(name).type)
        if len(columns) == len(facts.partition_by):
            raise InvalidInputError("no column is left to write", object_name=self.url, found=rows.names)
        ParquetFormat.of(self).check(columns)

    def written_columns(self, rows: pa.Schema, event_time: str | None) -> pa.Schema:
        """The columns of a stream that go into the table."""
        dropped = {event_time} if self.drop_event_time and event_time is not None else set()
        return without_columns(rows, dropped)
