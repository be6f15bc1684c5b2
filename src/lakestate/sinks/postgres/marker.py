"""The marker at the target: which epoch of which job the rows of a table are of.

One row for each sink, in a table beside the target. It changes in the transaction that changes the target, so
it says exactly what the target holds. A second job that continues a copy of the same state would take the
marker for its own; the row says where the checkpoint is, and that job is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, LiteralString

from lakestate.errors import ConflictError, InvalidInputError
from lakestate.sinks.output_owner import OutputClaim, OutputOwner, foreign_output_error
from lakestate.sinks.postgres.table import TableName, TargetTable
from lakestate.sinks.staged.delivery import StagedEpoch

if TYPE_CHECKING:
    from psycopg import sql

    from lakestate.sinks.postgres.connection import Connection

_COLUMNS = (
    "job_id text NOT NULL, sink_id text NOT NULL, state_id text NOT NULL, target text NOT NULL, "
    "checkpoint text NOT NULL, epoch bigint NOT NULL, manifest text NOT NULL, "
    "committed_at timestamptz NOT NULL, "
    "PRIMARY KEY (job_id, sink_id, state_id, target)"
)
_NAMES = frozenset(part.split()[0] for part in _COLUMNS.split(", PRIMARY")[0].split(", "))


@dataclass(frozen=True, slots=True)
class Markers:
    """The table of markers beside a target."""

    name: TableName
    target: str

    @classmethod
    def beside(cls, target: TargetTable, name: str) -> Markers:
        """The markers for a target, in its schema."""
        return cls(TableName(target.name.schema, name), str(target.name))

    def prepare(self, connection: Connection) -> None:
        """Create the table if it is missing, and refuse another one under its name, or without permission."""
        from psycopg import sql

        found = TargetTable.find(connection, self.name)
        if found is None:
            connection.execute(
                sql.SQL("CREATE TABLE {} ({})").format(self.name.identifier, sql.SQL(_COLUMNS))
            )
            return
        names = {column.name for column in found.columns}
        if not names >= _NAMES:
            raise InvalidInputError(
                "the table of markers is another table",
                object_name=f"table {self.name}",
                found=", ".join(sorted(names)),
                expected=", ".join(sorted(_NAMES)),
                action="pass another name as marker_table",
            )
        found.check_permissions(connection, ("SELECT", "INSERT", "UPDATE"))

    def claim(self, connection: Connection, owner: OutputOwner, claim: OutputClaim) -> None:
        """Own the target for a job that continues a checkpoint, or refuse because another one does."""
        if claim is OutputClaim.LOOK and TargetTable.find(connection, self.name) is None:
            return
        key = (owner.job_id, owner.sink_id, owner.state_id, self.target)
        if claim is not OutputClaim.LOOK:
            connection.execute(
                self._sql(
                    "INSERT INTO {} VALUES (%s, %s, %s, %s, %s, 0, '', now()) ON CONFLICT DO NOTHING",
                ),
                (*key, owner.checkpoint),
            )
        if claim is OutputClaim.TAKE_OVER:
            connection.execute(self._sql("UPDATE {} SET checkpoint = %s WHERE {}"), (owner.checkpoint, *key))
        row = connection.execute(self._sql("SELECT checkpoint FROM {} WHERE {}"), key).fetchone()
        if row is not None and row[0] != owner.checkpoint:
            other = OutputOwner(owner.job_id, owner.sink_id, owner.state_id, row[0])
            raise foreign_output_error(owner, f"table {self.target}", [other.mark])

    def holds(self, connection: Connection, epoch: StagedEpoch) -> bool:
        """Whether the target has the epoch, or a later one of the same job."""
        return self._compare(self._read(connection, epoch, ""), epoch)

    def lock(self, connection: Connection, epoch: StagedEpoch) -> bool:
        """Like `holds`, in a transaction: nobody else changes the marker until it ends."""
        found = self._read(connection, epoch, " FOR UPDATE")
        if found is None:
            raise ConflictError(
                "the marker of this job is gone",
                object_name=f"table {self.name}",
                expected=f"a row of job {epoch.job_id}, sink {epoch.sink_id}, state {epoch.state_id}",
                action="nothing was written; start again, which makes a new marker, if the target is as the "
                "epoch before left it",
            )
        return self._compare(found, epoch)

    def advance(self, connection: Connection, epoch: StagedEpoch) -> None:
        """Record the epoch, in the transaction that wrote its rows."""
        connection.execute(
            self._sql("UPDATE {} SET epoch = %s, manifest = %s, committed_at = now() WHERE {}"),
            (int(epoch.epoch), epoch.manifest, *self._key(epoch)),
        )

    def _read(
        self, connection: Connection, epoch: StagedEpoch, lock: LiteralString
    ) -> tuple[int, str] | None:
        from psycopg import sql

        query = self._sql("SELECT epoch, manifest FROM {} WHERE {}") + sql.SQL(lock)
        found = connection.execute(query, self._key(epoch)).fetchone()
        return None if found is None else (found[0], found[1])

    def _compare(self, found: tuple[int, str] | None, epoch: StagedEpoch) -> bool:
        if found is not None and found[0] == epoch.epoch and found[1] != epoch.manifest:
            raise ConflictError(
                f"the target holds another epoch {epoch.epoch} of this job",
                object_name=f"table {self.target}",
                found=found[1],
                expected=epoch.manifest,
                action="find out who else continues a copy of this job's checkpoint; nothing was written",
            )
        return found is not None and found[0] >= epoch.epoch

    def _key(self, epoch: StagedEpoch) -> tuple[str, ...]:
        return epoch.job_id, epoch.sink_id, epoch.state_id, self.target

    def _sql(self, text: LiteralString) -> sql.Composed:
        from psycopg import sql

        where = sql.SQL("job_id = %s AND sink_id = %s AND state_id = %s AND target = %s")
        return sql.SQL(text).format(self.name.identifier, where)
