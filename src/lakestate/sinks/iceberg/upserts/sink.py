"""`IcebergUpsertSink`: what `IcebergSink(key=…)` becomes in a stream. Rows are staged and merged by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.row_kind import CHANGE, RowKind, StreamKind
from lakestate.sinks.formats.row_schema import without_columns
from lakestate.sinks.keyed_rows import require_key_columns
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.sinks.staged.sink import StagedSink
from lakestate.tables.hashing.routing import routing_keys

if TYPE_CHECKING:
    from lakestate.sinks.iceberg.sink import IcebergSink


@dataclass(frozen=True)
class IcebergUpsertSink(StagedSink):
    """Keeps one row for each key in an Iceberg table."""

    target: IcebergSink
    stream: StreamKind
    """What the rows mean."""

    takes = tuple(RowKind)

    def __repr__(self) -> str:
        return repr(self.target)

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows that do not fit into the table. A missing table is created, if `create` is set."""
        self.target.check(self._table_rows(schema), event_time)

    def dry_run(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse what `check` refuses. A missing table or catalog is not created."""
        self.target.dry_run(self._table_rows(schema), event_time)

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Own the table, for this sink."""
        self.target.claim_output(owner, claim)

    def deliver(self, epoch: StagedEpoch) -> None:
        """Merge the rows of an epoch in one commit, unless the table holds it."""
        from lakestate.sinks.iceberg.upserts.delivery import deliver

        deliver(self.target, epoch)

    def _table_rows(self, schema: pa.Schema) -> pa.Schema:
        """The columns that go into the table. Refuses a key that rows lack, or that cannot be compared."""
        rows = without_columns(schema, {CHANGE} if self.stream.kind is RowKind.CHANGES else set())
        require_key_columns(self.target.key, rows.names, self.target.table)
        for name in self.target.key:
            _check_key(self.target.table, rows.field(name))
        return rows


def _check_key(table: str, field: pa.Field) -> None:
    if pa.types.is_floating(field.type) or pa.types.is_nested(field.type):
        raise InvalidInputError(
            "rows cannot be told apart by a column of this type",
            object_name=f"{table}, key column {field.name}",
            found=field.type,
            expected="whole numbers, decimals, text, bytes, booleans, dates or times",
        )
    routing_keys([pa.array([], field.type)])
