"""`IcebergSink`: exactly-once appends to an Iceberg table, with files that stay open across epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.row_kind import StreamKind
from lakestate.sinks.description import describe_sink
from lakestate.sinks.files.settings import FileSinkSettings
from lakestate.sinks.files.sink import FileSink, file_sink_tables
from lakestate.sinks.formats.parquet.format import ParquetFormat, ParquetSettings
from lakestate.sinks.formats.row_schema import without_columns
from lakestate.sinks.iceberg.catalog import IcebergCatalog, require_pyiceberg
from lakestate.sinks.iceberg.maintenance.settings import Maintenance
from lakestate.sinks.iceberg.rows import file_schema
from lakestate.sinks.iceberg.transforms import PartitionTerm
from lakestate.sinks.iceberg.upserts.sink import IcebergUpsertSink
from lakestate.sinks.keyed_rows import key_columns, require_key
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.sink import EarlierAttempts, Sink, SinkCommitter, SinkContext, SinkWriter
from lakestate.sinks.table_format.data_files import TableFilesWriter
from lakestate.tables.contract import Table as StateTable

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakestate.sinks.iceberg.files import IcebergFiles


@dataclass(frozen=True, repr=False)
class IcebergSink(ParquetSettings, FileSinkSettings, Sink):
    """Appends rows to an Iceberg table: each epoch that finished files is one snapshot.

    `catalog` is the warehouse of an embedded SQLite catalog, an `IcebergCatalog`, or the
    properties of any catalog that pyiceberg knows. With `create` a table that does not exist is
    created from the columns of the stream, partitioned by `partition_by`: columns, and `year`,
    `month`, `day`, `hour`, `bucket(N, …)` and `truncate(N, …)` of columns.

    >>> sink = IcebergSink("shop.orders", catalog="file:///data/warehouse", partition_by=["day(ts)"])
    >>> sink.catalog
    IcebergCatalog('lakestate', properties=type, uri, warehouse)
    """

    table: str
    _: KW_ONLY
    catalog: IcebergCatalog | Mapping[str, str] | str | Path
    create: bool = True
    partition_by: Sequence[str] = ()
    drop_event_time: bool = False
    """Leave the event-time column out: the table need not have it."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of a table that is created."""
    key: Sequence[str] = ()
    """Keep one row for each key. Then each epoch is merged when it is committed, and no file stays open."""
    maintenance: Maintenance | None = None
    """Look after the table beside the stream: expire snapshots, remove orphans, compact."""
    commit_attempts_max: int = 20
    """How often an append, or another call of the catalog, is tried."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "catalog", IcebergCatalog.of(self.catalog))
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        object.__setattr__(self, "key", key_columns(self.key, self.table))
        super().__post_init__()
        ParquetFormat.of(self)
        for term in self.partition_by:
            PartitionTerm.of(term)
        if "." not in self.table.strip("."):
            raise InvalidInputError(
                "not the name of an Iceberg table", found=repr(self.table), expected="namespace.name"
            )
        if self.commit_attempts_max < 1:
            raise InvalidInputError("an append must be tried once", found=self.commit_attempts_max)
        if self.key and (self.roll.visible is not None or self.snapshot_open_files):
            raise InvalidInputError(
                "a table with a key has no open files: all rows of an epoch are visible at once",
                object_name=self.table,
                found="visible" if self.roll.visible is not None else "snapshot_open_files",
                action="leave it out",
            )
        if self.key and self.maintenance is not None:
            raise InvalidInputError(
                "a sink with a key does not look after its table",
                object_name=self.table,
                action="leave maintenance out, and compact and expire with another tool",
            )

    def __repr__(self) -> str:
        return describe_sink(self, "table")

    def for_stream(self, kind: StreamKind, who: str) -> Sink:
        """The sink for rows of a stream. Without a key, rows are appended, and updates refused."""
        require_key(self.key, kind, who)
        return IcebergUpsertSink(self, kind) if self.key else self

    def tables(self) -> Sequence[StateTable]:
        """The open files, and what each epoch has to commit."""
        return file_sink_tables()

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows that do not fit into the table. A missing table is created, if `create` is set."""
        files = self._files_for(schema, event_time)
        given = [PartitionTerm.of(term) for term in self.partition_by]
        wanted = [(term.column, term.transform_text) for term in given]
        found = [(each.column, each.transform) for each in files.facts.fields]
        if wanted and wanted != found:
            raise InvalidInputError(
                "the table has another partition spec",
                object_name=self.table,
                found=", ".join(f"{transform}({column or 'dropped'})" for column, transform in found)
                or "no partition field",
                expected=", ".join(self.partition_by),
                action="leave partition_by out to use the table's, or change the table",
            )
        if self.roll.past_watermark is not None and event_time and files.partitioning.event_time is None:
            raise InvalidInputError(
                "roll by watermark needs files that are partitioned by event time",
                object_name=self.table,
                action="roll by interval, or keep the event time and partition the table by it"
                if self.drop_event_time
                else f"partition the table by day({event_time}), or roll by interval",
            )
        doubles = [each.column for each in files.facts.fields if pa.types.is_float64(each.source)]
        if doubles and (self.key or self.roll.visible is not None):
            raise InvalidInputError(
                "files of a table that is partitioned by a double cannot be replaced: pyiceberg would round "
                "its partitions",
                object_name=f"{self.table}, column {doubles[0]}",
                found=f"key={list(self.key)}" if self.key else f"Roll(visible={str(self.roll.visible)!r})",
                action="partition by another column"
                + ("" if self.key else ", or leave `visible` out and use a shorter interval"),
            )
        files.file_format.check(files.columns)

    def dry_run(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse what `check` refuses. A missing table or catalog is not created."""
        require_pyiceberg()
        if not self._is_new():
            self.check(schema, event_time)
            return
        from lakestate.sinks.iceberg.table import new_table_layout

        new_table_layout(self._written_columns(schema, event_time), self.partition_by)

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch, in the table's schema as it is now."""
        files = self._files_for(context.schema, context.event_time)
        return TableFilesWriter(files, files.facts, context)

    def committer(self) -> SinkCommitter:
        """The committer, for the driver."""
        require_pyiceberg()
        from lakestate.sinks.iceberg.commits.committer import IcebergCommitter

        return IcebergCommitter(self)

    def clear_earlier_attempts(self, earlier: EarlierAttempts) -> None:
        """Remove hidden files of failed drivers. Without a table there are none."""
        with suppress(NotFoundError):
            self.file_sink().clear_earlier_attempts(earlier)

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Own the folder of the table's data files, for the files of this job."""
        self.file_sink().claim_output(owner, claim)

    def file_sink(self) -> FileSink:
        """What writes the table's data files, as the table is now."""
        return self.files(self.load_table())

    def load_table(self) -> Table:
        """The table as it is now. Raises NotFoundError."""
        require_pyiceberg()
        from lakestate.sinks.iceberg.catalog_calls import call_catalog
        from lakestate.sinks.iceberg.table import load_table

        return call_catalog(
            lambda: load_table(self._catalog.load(), self.table), self.table, self.commit_attempts_max
        )

    def files(
        self, table: Table, rows: pa.Schema | None = None, event_time: str | None = None
    ) -> IcebergFiles:
        """The data files of the table as a file sink, for rows of a schema."""
        from lakestate.sinks.iceberg.files import IcebergDataFormat, IcebergFiles
        from lakestate.sinks.iceberg.table import TableFacts

        facts = TableFacts.of(table)
        settings = self.file_sink_settings()
        # What is not given about the object store is taken from the catalog's properties.
        settings["options"] = {**facts.options, **(self.options or {})} or None
        return IcebergFiles(
            facts.url,
            format=IcebergDataFormat.of(self),
            **settings,
            facts=facts,
            columns=facts.schema if rows is None else file_schema(rows, facts.schema),
            event_time_column=event_time,
        )

    def _files_for(self, rows: pa.Schema, event_time: str | None) -> IcebergFiles:
        """The data files for rows of a stream. Refuses rows that do not fit into the table."""
        dropped = self._dropped_columns(event_time)
        written = self._written_columns(rows, event_time)
        files = self.files(self._load_or_create_table(written), written, event_time)
        _check_partitions(self.table, dropped, [each.column for each in files.facts.fields])
        return files

    def _written_columns(self, rows: pa.Schema, event_time: str | None) -> pa.Schema:
        """The columns of a stream that go into the table."""
        dropped = self._dropped_columns(event_time)
        _check_partitions(self.table, dropped, [PartitionTerm.of(term).column for term in self.partition_by])
        written = without_columns(rows, dropped)
        if not len(written):
            raise InvalidInputError("no column is left to write", object_name=self.table, found=rows.names)
        return written

    def _dropped_columns(self, event_time: str | None) -> set[str]:
        return {event_time} if self.drop_event_time and event_time is not None else set()

    def _is_new(self) -> bool:
        """Whether a start would create the table. Raises NotFoundError if it may not."""
        try:
            if not self._catalog.is_missing:
                self.load_table()
                return False
        except NotFoundError:
            if not self.create:
                raise
        if not self.create:
            raise NotFoundError("there is no such Iceberg table", object_name=self.table)
        return True

    @property
    def _catalog(self) -> IcebergCatalog:
        return IcebergCatalog.of(self.catalog)

    def _load_or_create_table(self, rows: pa.Schema) -> Table:
        try:
            return self.load_table()
        except NotFoundError:
            if not self.create:
                raise
        from lakestate.sinks.iceberg.catalog_calls import call_catalog
        from lakestate.sinks.iceberg.table import create_table

        return call_catalog(
            lambda: create_table(self._catalog.load(), self.table, rows, self.partition_by, self.properties),
            self.table,
            self.commit_attempts_max,
        )


def _check_partitions(table: str, dropped: set[str], columns: Sequence[str | None]) -> None:
    """A partition follows from a column of the table, so a column that is left out would make it null."""
    for column in dropped.intersection(columns):
        raise InvalidInputError(
            "a table is partitioned by the event-time column, which drop_event_time leaves out",
            object_name=f"{table}, column {column}",
            action="keep the column, or partition by a copy of it under another name",
        )
