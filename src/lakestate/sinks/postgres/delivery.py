"""The delivery of an epoch: COPY into a temporary table, then one transaction with the marker.

The marker is compared inside the transaction, with its row locked, before anything is changed. So it
does not matter how often an epoch is delivered, by whom, or which answers are lost: the rows are there
once. The lock is held while rows are merged, not while they are sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.errors import InvalidInputError, StorageUnavailableError
from lakestate.row_kind import CHANGE, DELETE, RowKind
from lakestate.sinks.postgres.marker import Markers
from lakestate.sinks.postgres.rows import ORDER, encode_copy, target_names
from lakestate.sinks.postgres.table import TableName, TargetTable
from lakestate.sinks.staged.delivery import StagedEpoch

if TYPE_CHECKING:
    from psycopg import sql

    from lakestate.sinks.postgres.connection import Connection

STAGING = "lakestate_staging"
ANALYZED_ROWS_MIN = 1_000
_WAIT_MAX_S = 2.0


@dataclass(frozen=True, slots=True)
class Merge:
    """How rows get from the temporary table into the target."""

    target: TableName
    columns: tuple[str, ...]
    key: tuple[str, ...]
    kind: RowKind

    @classmethod
    def of(cls, target: TargetTable, schema: pa.Schema, key: Sequence[str], kind: RowKind) -> Merge:
        """The merge of rows of a stream."""
        return cls(target.name, tuple(target_names(schema, kind)), tuple(key), kind)

    @property
    def privileges(self) -> tuple[str, ...]:
        """What the user must be permitted to do."""
        if not self.key:
            return ("SELECT", "INSERT")
        return ("SELECT", "INSERT", "UPDATE", *(("DELETE",) if self.kind is RowKind.CHANGES else ()))

    def create_staging(self, connection: Connection) -> None:
        """The temporary table, with the target's types. It ends with the connection."""
        from psycopg import sql

        connection.execute(sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(sql.Identifier(STAGING)))
        change = sql.SQL("''::text AS {}").format(sql.Identifier(CHANGE))
        columns = [_list(self.columns), sql.SQL("0::bigint AS {}").format(sql.Identifier(ORDER))]
        columns += [change] if self.kind is RowKind.CHANGES else []
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} AS SELECT {} FROM {} WITH NO DATA").format(
                sql.Identifier(STAGING), sql.SQL(", ").join(columns), self.target.identifier
            )
        )

    def run(self, connection: Connection) -> None:
        """Merge what was staged. Of several rows of one key, the last one counts."""
        if self.kind is RowKind.CHANGES:
            connection.execute(self._delete())
        connection.execute(self._insert())

    def _delete(self) -> sql.Composed:
        from psycopg import sql

        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self.key
        )
        return sql.SQL("DELETE FROM {} t USING ({}) s WHERE {} AND s.{} = {}").format(
            self.target.identifier, self._last_rows(), same, sql.Identifier(CHANGE), sql.Literal(DELETE)
        )

    def _insert(self) -> sql.Composed:
        from psycopg import sql

        into = sql.SQL("INSERT INTO {} ({}) ").format(self.target.identifier, _list(self.columns))
        if not self.key:
            return into + sql.SQL("SELECT {} FROM pg_temp.{} ORDER BY {}").format(
                _list(self.columns), sql.Identifier(STAGING), sql.Identifier(ORDER)
            )
        kept = (
            sql.SQL(" WHERE s.{} <> {}").format(sql.Identifier(CHANGE), sql.Literal(DELETE))
            if self.kind is RowKind.CHANGES
            else sql.SQL("")
        )
        rows = sql.SQL("SELECT {} FROM ({}) s").format(_list(self.columns), self._last_rows())
        return into + rows + kept + sql.SQL(" ON CONFLICT ({}) ").format(_list(self.key)) + self._update()

    def _update(self) -> sql.Composable:
        from psycopg import sql

        others = [name for name in self.columns if name not in self.key]
        if not others:
            return sql.SQL("DO NOTHING")
        return sql.SQL("DO UPDATE SET ") + sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
        )

    def _last_rows(self) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(
            "SELECT DISTINCT ON ({keys}) * FROM pg_temp.{staging} ORDER BY {keys}, {order} DESC"
        ).format(keys=_list(self.key), staging=sql.Identifier(STAGING), order=sql.Identifier(ORDER))


def deliver_until(deadline_s: float, attempt: Callable[[], None]) -> None:
    """Call `attempt` until the server answers, for so many seconds.

    Also after a lost answer to COMMIT: the next attempt finds the marker, or waits for its lock.
    """
    ends = time.monotonic() + deadline_s
    wait_s = 0.05
    while True:
        try:
            attempt()
            return
        except StorageUnavailableError:
            if time.monotonic() + wait_s >= ends:
                raise
        except InvalidInputError as refused:
            refused.action = refused.action or (
                "the epoch is published: change what the server refuses, and start again to deliver it"
            )
            raise
        time.sleep(wait_s)
        wait_s = min(_WAIT_MAX_S, wait_s * 2)


def deliver(
    epoch: StagedEpoch, connection: Connection, merge_of: Callable[[pa.Schema], Merge], markers: Markers
) -> None:
    """Send the rows of an epoch, and merge them unless the target has got them meanwhile."""
    tables = epoch.tables()
    first = next(tables)
    merge = merge_of(first.schema)
    merge.create_staging(connection)
    _copy(chain([first], tables), connection, merge)
    with connection.transaction():
        if not markers.lock(connection, epoch):
            merge.run(connection)
            markers.advance(connection, epoch)


def _copy(tables: Iterable[pa.Table], connection: Connection, merge: Merge) -> None:
    from psycopg import sql

    columns = [*merge.columns, ORDER, *((CHANGE,) if merge.kind is RowKind.CHANGES else ())]
    statement = sql.SQL("COPY pg_temp.{} ({}) FROM STDIN (FORMAT csv)").format(
        sql.Identifier(STAGING), _list(columns)
    )
    count = 0
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for table in tables:
            data, rows = encode_copy(table, merge.kind, count)
            copy.write(data)
            count += rows
    if count >= ANALYZED_ROWS_MIN:
        connection.execute(sql.SQL("ANALYZE pg_temp.{}").format(sql.Identifier(STAGING)))


def _list(names: Sequence[str]) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, names))
