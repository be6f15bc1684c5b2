"""`PostgresSink`: rows in a table of PostgreSQL, appended or kept by key, each epoch exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.keyed_rows import key_columns, kinds_taken, require_key, require_key_columns
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.postgres.connection import connect, place_of, translate_errors
from lakestate.sinks.postgres.delivery import Merge, deliver, deliver_until
from lakestate.sinks.postgres.marker import Markers
from lakestate.sinks.postgres.rows import check_rows, target_names
from lakestate.sinks.postgres.table import (
    TableName,
    TargetTable,
    check_names,
    create_table,
    missing_table_error,
)
from lakestate.sinks.postgres.types import TargetColumn
from lakestate.sinks.sink import SinkContext, SinkWriter
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.sinks.staged.sink import StagedSink, StagedWriter

if TYPE_CHECKING:
    from lakestate.sinks.postgres.connection import Connection

_PREPARE_LOCK = 0x6C616B65
"""Of an advisory lock: two jobs that start at the same moment must not create one table twice."""


@dataclass(frozen=True, repr=False)
class PostgresSink(StagedSink):
    """Writes rows into a table of PostgreSQL, each epoch in one transaction that also records the epoch.

    Without a `key`, rows are appended. With one, a row replaces the row of its key, and streams of updates
    and of changes are taken; changes delete rows, too. The key must have a unique index. `dsn` is a
    connection string; leave the password to libpq (`PGPASSWORD`, a password file), or give it here: it is
    never shown, stored or sent to workers.

    >>> PostgresSink("postgresql://shop:s3cr3t@db/orders", "totals", key=["user"])
    PostgresSink('postgresql://shop@db/orders', 'totals', key=['user'])
    """

    dsn: str
    table: str
    _: KW_ONLY
    key: Sequence[str] = ()
    create: bool = False
    """Create a table that does not exist, with the columns of the stream and the key as primary key."""
    marker_table: str = "lakestate_epochs"
    """The table of markers, in the schema of the target. It is created if it does not exist."""
    retry: str = "60 seconds"
    """How long an epoch is delivered again while the server does not answer."""
    stream: StreamKind = field(default=StreamKind())
    """What the rows mean. The pipeline says so."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_columns(self.key, self.table))
        place_of(self.dsn)
        TableName.of(self.table)
        duration_us(self.retry)

    def __repr__(self) -> str:
        shown = f", key={list(self.key)!r}" if self.key else ""
        return f"PostgresSink({self.place!r}, {self.table!r}{shown})"

    @property
    def place(self) -> str:
        """Where the table is, without a password."""
        return place_of(self.dsn)

    @property
    def takes(self) -> tuple[RowKind, ...]:  # type: ignore[override]
        """Final rows; with a key also updates and changes."""
        return kinds_taken(self.key)

    def for_stream(self, kind: StreamKind, who: str) -> PostgresSink:
        """The sink for rows of a stream. Refuses updates without a key, or by another key."""
        require_key(self.key, kind, who)
        return replace(self, stream=kind)

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows that do not fit, or a table that cannot be written to. Creates what is missing."""
        with self._connect("prepare the table") as connection, connection.transaction():
            target = self._prepare(connection, schema)
        # Subtasks get the sink and not the database.
        self.__dict__["columns"] = {column.name: column for column in target.columns}

    def dry_run(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse what `check` refuses. Everything is rolled back."""
        with self._connect("prepare the table") as connection, connection.transaction(force_rollback=True):
            self._prepare(connection, schema)

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Own the marker, or refuse because a copy of this job's checkpoint does."""
        with self._connect("record the job") as connection:
            target = TargetTable.find(connection, TableName.of(self.table))
            if target is None and claim is OutputClaim.LOOK:
                return
            markers = Markers.beside(target or self._target(connection), self.marker_table)
            markers.claim(connection, owner, claim)

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask, which refuses rows that PostgreSQL could never hold."""
        columns: Mapping[str, TargetColumn] = self.__dict__.get("columns", {})
        return _CheckingWriter(context, self.table, columns, self.key)

    def deliver(self, epoch: StagedEpoch) -> None:
        """Deliver an epoch in one transaction, unless the table has it."""
        deliver_until(duration_us(self.retry) / 1e6, partial(self._deliver_once, epoch))

    def __getstate__(self) -> dict[str, Any]:
        """Without the connection string: only the driver connects, and what it pickles may be stored."""
        return {**self.__dict__, "dsn": self.place}

    def _deliver_once(self, epoch: StagedEpoch) -> None:
        with self._connect(f"take epoch {epoch.epoch}") as connection:
            target = self._target(connection)
            markers = Markers.beside(target, self.marker_table)
            if not markers.holds(connection, epoch):
                deliver(epoch, connection, partial(self._merge, target), markers)

    def _merge(self, target: TargetTable, schema: pa.Schema) -> Merge:
        return Merge.of(target, schema, self.key, self.stream.kind)

    def _prepare(self, connection: Connection, schema: pa.Schema) -> TargetTable:
        name, rows = TableName.of(self.table), self._table_rows(schema)
        check_names(connection, [name.schema or "", name.name, self.marker_table, *rows.names], self.table)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_PREPARE_LOCK,))
        target = TargetTable.find(connection, name)
        if target is None and not self.create:
            raise missing_table_error(name, self.place)
        if target is None:
            create_table(connection, name, rows, self.key)
        target = self._target(connection)
        target.check(rows, self.key)
        merge = self._merge(target, schema)
        target.check_permissions(connection, merge.privileges)
        Markers.beside(target, self.marker_table).prepare(connection)
        # With no rows: what the server would refuse in the first epoch, it refuses now.
        merge.create_staging(connection)
        merge.run(connection)
        return target

    def _table_rows(self, schema: pa.Schema) -> pa.Schema:
        names = target_names(schema, self.stream.kind)
        require_key_columns(self.key, names, f"table {self.table}")
        if not names:
            raise InvalidInputError("no column is left to write", object_name=f"table {self.table}")
        return pa.schema([schema.field(name) for name in names])

    def _target(self, connection: Connection) -> TargetTable:
        name = TableName.of(self.table)
        found = TargetTable.find(connection, name)
        if found is None:
            raise missing_table_error(name, self.place)
        return found

    @contextmanager
    def _connect(self, act: str) -> Iterator[Connection]:
        with translate_errors(self.dsn, act, self.table), connect(self.dsn) as connection:
            yield connection


class _CheckingWriter(StagedWriter):
    """Stages rows that the target can hold, and refuses the others."""

    def __init__(
        self, context: SinkContext, table: str, columns: Mapping[str, TargetColumn], key: Sequence[str]
    ) -> None:
        super().__init__(context)
        self._table, self._columns, self._key = table, columns, key

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows."""
        check_rows(batch, self._columns, self._key, self._table)
        super().write(batch)
