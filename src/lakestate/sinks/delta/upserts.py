"""`DeltaUpserts`: a stream kept by key in a Delta table, one merge for each epoch with rows.

Rows are staged with their epoch in the types of the table, and merged once it is published. What the table
could never take is refused by the subtask, before that: afterwards the epoch could not be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as is_type

from lakestate.errors import InvalidInputError
from lakestate.row_kind import CHANGE, RowKind, StreamKind
from lakestate.sinks.delta.features import check_can_change_rows
from lakestate.sinks.delta.library import require_deltalake
from lakestate.sinks.delta.partition_values import check_partition_values
from lakestate.sinks.delta.progress import EpochEntry
from lakestate.sinks.delta.table import TableFacts
from lakestate.sinks.delta.types import EXACT_DIGITS, file_schema, is_inexact_in_bounds
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.sinks.formats.row_schema import check_values, without_columns
from lakestate.sinks.keyed_rows import require_changes, require_key_columns
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.sink import SinkContext, SinkWriter
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.sinks.staged.sink import StagedSink, StagedWriter
from lakestate.sinks.table_format.rows import conform_rows

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from lakestate.sinks.delta.epoch_log import Commit
    from lakestate.sinks.delta.sink import DeltaSink


@dataclass(frozen=True, repr=False)
class DeltaUpserts(StagedSink):
    """What a `DeltaSink` with a key is for the rows of a stream."""

    sink: DeltaSink
    stream: StreamKind

    def __repr__(self) -> str:
        return repr(self.sink)

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows and tables that cannot be merged. It is created or extended, if that is asked."""
        facts = self.sink.prepare_table(self._target_columns(schema), event_time)
        check_can_merge(facts, self.sink.key)
        object.__setattr__(self, "_facts", facts)

    def dry_run(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse what `check` refuses. The table is neither created nor changed."""
        facts = self.sink.try_table(self._target_columns(schema), event_time)
        if facts is not None:
            check_can_merge(facts, self.sink.key)

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch, in the table's types as the start found them."""
        facts = getattr(self, "_facts", None) or TableFacts.of(self.sink.load_table(), self.sink.url)
        rows = self.sink.written_columns(self._target_columns(context.schema), context.event_time)
        return _UpsertWriter(context, self, file_schema(rows, facts.schema), facts.partition_by)

    def deliver(self, epoch: StagedEpoch) -> None:
        """Merge the rows of a published epoch, unless the table has them."""
        require_deltalake()
        fingerprint = sink_fingerprint(epoch.job_id, epoch.sink_id, epoch.state_id)
        entry = EpochEntry.of(epoch.job_id, fingerprint, epoch.epoch, [epoch.manifest])
        # A later epoch is merged only after this one, so that a table with a later one has had this one.
        self.sink.epoch_log.commit(entry, lambda: True, _Delivery(self.sink, epoch).prepare)

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Own the table for this job: a copy of its checkpoint would merge other rows as the same epochs."""
        self.sink.claim_output(owner, claim)

    def _target_columns(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the rows that go into the table."""
        changes = {CHANGE} if self.stream.kind is RowKind.CHANGES else set()
        rows = without_columns(schema, changes)
        require_key_columns(self.sink.key, rows.names, self.sink.url)
        for name in self.sink.key:
            _check_key_type(name, rows.field(name).type)
        _check_merged_columns(rows, self.sink.partition_by)
        return rows


class _UpsertWriter(StagedWriter):
    """Stages rows in the types of the table, and refuses those that it could not take."""

    def __init__(
        self, context: SinkContext, upserts: DeltaUpserts, schema: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        super().__init__(context)
        self._upserts = upserts
        self._schema = schema
        self._partition_by = partition_by

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows."""
        check_values(batch)
        rows = conform_rows(batch, self._schema)
        for name in self._upserts.sink.key:
            _require_key_values(name, rows.column(name))
        check_partition_values(rows, self._partition_by)
        if self._upserts.stream.kind is RowKind.CHANGES:
            rows = rows.append_column(
                pa.field(CHANGE, pa.string()), require_changes(batch.column(CHANGE).cast(pa.string()))
            )
        super().write(rows)


class _Delivery:
    """One epoch on its way into the table. Its rows are read once, however often the merge is tried."""

    def __init__(self, sink: DeltaSink, epoch: StagedEpoch) -> None:
        self._sink = sink
        self._epoch = epoch
        self._rows: pa.Table | None = None

    def prepare(self, table: DeltaTable) -> Commit:
        """Make the merge ready, or refuse the table as it is now."""
        from lakestate.sinks.delta.features import check_features
        from lakestate.sinks.delta.merge import TableMerge, newest_by_key

        check_features(table, self._sink.url)
        facts = TableFacts.of(table, self._sink.url)
        check_can_merge(facts, self._sink.key)
        if self._rows is None:
            self._rows = newest_by_key(self._epoch.tables(), self._sink.key)
        file_schema(without_columns(self._rows.schema, {CHANGE}), facts.schema)
        merge = TableMerge(self._rows, tuple(self._sink.key), self._sink.compression)
        return lambda properties: merge.commit(table, properties)


def check_can_merge(facts: TableFacts, key: Sequence[str]) -> None:
    """Refuse a table whose rows may not be changed, or would not be found by their key."""
    check_can_change_rows(facts.properties, facts.url)
    for name in key:
        _check_key_type(name, facts.schema.field(name).type)
    _check_merged_columns(facts.schema, facts.partition_by)


def _check_merged_columns(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Refuse columns with which deltalake cannot merge, or leaves a table that nobody can read."""
    for name in schema.names:
        if "`" in name:
            raise InvalidInputError(
                "rows of a Delta table with such a column cannot be kept by key",
                object_name=name,
                expected="names without a backtick",
                action="rename it before the sink",
            )
    for name in partition_by:
        # A negative one would be written as -1.-50.
        if name in schema.names and is_type.is_decimal(given := schema.field(name).type) and given.scale > 0:
            raise InvalidInputError(
                "rows of a Delta table cannot be kept by key in partitions of this type",
                object_name=name,
                found=given,
                expected="text, integer, boolean, decimal without a fraction, date or timestamp",
                action="partition by another column",
            )


def _check_key_type(name: str, given: pa.DataType) -> None:
    plain = given.value_type if is_type.is_dictionary(given) else given
    is_inexact = is_type.is_floating(plain) or is_inexact_in_bounds(plain)
    if is_inexact or is_type.is_nested(plain) or is_type.is_null(plain):
        raise InvalidInputError(
            "rows of a Delta table cannot be found by a column of this type",
            object_name=name,
            found=given,
            expected=f"text, bytes, integer, boolean, date, timestamp, or decimal of at most "
            f"{EXACT_DIGITS} digits",
            action="use another key, such as the value as text",
        )


def _require_key_values(name: str, column: pa.Array) -> None:
    if column.null_count:
        raise InvalidInputError(
            "write to the table: a key column has no value",
            object_name=name,
            found=f"{column.null_count} nulls",
            expected="a value in each row: null equals nothing, so the row could not be found again",
            action="replace null before the sink",
        )
