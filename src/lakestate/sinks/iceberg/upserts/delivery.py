"""Merges the rows of an epoch into a table: new rows, and the files that hold changed keys, in one commit.

Files are rewritten without the rows that are replaced (copy on write). Which files can hold a key is known
from partitions and statistics; of those, only the key columns are read. The epoch is recorded in the same
commit, and looked for before every try, as it is for files that are appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import TableUpdate

from lakestate.errors import InvalidInputError
from lakestate.row_kind import CHANGE
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.sinks.iceberg.commits.change import commit_updates
from lakestate.sinks.iceberg.commits.committer import commit_until_done, is_committed
from lakestate.sinks.iceberg.commits.progress import IcebergEpoch
from lakestate.sinks.iceberg.commits.snapshots import ReplaceSnapshot
from lakestate.sinks.iceberg.commits.written_rows import write_rows
from lakestate.sinks.iceberg.rows import file_schema
from lakestate.sinks.iceberg.upserts.rows import ChangedKeys
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.sinks.table_format.epoch_files import digest_of
from lakestate.sinks.table_format.rows import conform_rows

if TYPE_CHECKING:
    from lakestate.sinks.iceberg.sink import IcebergSink

_IN: Any = In
_AT_LEAST: Any = GreaterThanOrEqual
_AT_MOST: Any = LessThanOrEqual

KEYS_NAMED_MAX = 200
"""So many keys are looked up by name in partitions and statistics; of more, only the range."""


@dataclass(frozen=True, slots=True)
class EpochRows(IcebergEpoch):
    """An epoch that is known by its manifest: it names no files."""

    manifest: str = ""

    @classmethod
    def of_epoch(cls, epoch: StagedEpoch) -> EpochRows:
        """What is recorded of an epoch."""
        fingerprint = sink_fingerprint(epoch.job_id, epoch.sink_id, epoch.state_id)
        return cls(epoch.job_id, fingerprint, epoch.epoch, (), epoch.manifest)

    @property
    def digest(self) -> str:
        """Identifies the epoch by its manifest, whose name is never used twice."""
        return digest_of([self.manifest]).hex()


def deliver(sink: IcebergSink, epoch: StagedEpoch) -> None:
    """Merge an epoch, unless the table holds it."""
    mark = EpochRows.of_epoch(epoch)
    table = sink.load_table()
    if _is_committed(sink, mark, table):
        return
    staged = pa.concat_tables(epoch.tables())
    commit_until_done(
        sink,
        mark,
        table,
        prepare=lambda table: RowChange.prepare(sink, table, _changed_keys(sink, table, staged), mark),
        is_committed=lambda table: _is_committed(sink, mark, table),
    )


def _is_committed(sink: IcebergSink, mark: EpochRows, table: Table) -> bool:
    # A later epoch is merged only after this one, so that a table with a later one has had this one.
    return is_committed(sink, table, mark, lambda: True)


def _changed_keys(sink: IcebergSink, table: Table, staged: pa.Table) -> ChangedKeys:
    """The rows of an epoch by key, in the columns of the table as it is."""
    changes = [staged[CHANGE]] if CHANGE in staged.column_names else []
    rows = staged.drop_columns([CHANGE]) if changes else staged
    schema = file_schema(rows.schema, sink.files(table).facts.schema)
    batches = [conform_rows(batch, schema) for batch in rows.to_batches()]
    written = pa.Table.from_batches(batches, schema)
    for column in changes:
        written = written.append_column(CHANGE, column)
    return ChangedKeys.of(written, sink.key)


@dataclass(frozen=True)
class RowChange:
    """A merge that is prepared for a table as it was loaded: data files are written, manifests are not."""

    table: Table
    mark: EpochRows
    added: list[DataFile] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    written: list[ReplaceSnapshot] = field(default_factory=list)

    @classmethod
    def prepare(cls, sink: IcebergSink, table: Table, changed: ChangedKeys, mark: EpochRows) -> RowChange:
        """Write the new rows, and what is left of the files that hold changed keys."""
        change = cls(table, mark)
        change.added.extend(write_rows(table, sink.files(table, changed.rows.schema), changed.rows))
        for task, left in _rewritten_files(table, changed):
            change.removed.add(task.file.file_path)
            change.added.extend(write_rows(table, sink.files(table, left.schema), left))
        return change

    def commit(self) -> None:
        """Commit, if the table's main branch is still where it was. Raises what the catalog raises."""
        commit_updates(self.table, self.mark.properties(), self._snapshot())

    def discard(self) -> None:
        """Remove what was written for a change that is known not to have happened."""
        for each in self.written:
            each._clean_all_uncommitted()
        for file in self.added:
            self.table.io.delete(file.file_path)

    def _snapshot(self) -> tuple[TableUpdate, ...]:
        if not self.added and not self.removed:
            return ()
        transaction = self.table.transaction()
        snapshot = ReplaceSnapshot(
            Operation.OVERWRITE, transaction, self.table.io, snapshot_properties=self.mark.summary()
        )
        snapshot.removed = self.removed
        snapshot.shown_operation = self._operation
        self.written.append(snapshot)
        for file in self.added:
            snapshot.append_data_file(file)
        updates, _ = snapshot._commit()
        return updates

    @property
    def _operation(self) -> Operation:
        if not self.removed:
            return Operation.APPEND
        return Operation.OVERWRITE if self.added else Operation.DELETE


def _rewritten_files(table: Table, changed: ChangedKeys) -> Iterator[tuple[FileScanTask, pa.Table]]:
    """Each file that holds a changed key, with the rows that stay."""
    key_columns = table.schema().select(*changed.key)
    try:
        tasks = list(table.scan(row_filter=_key_filter(changed)).plan_files())
    except (NotImplementedError, ValueError) as cause:
        raise InvalidInputError(
            "a table cannot be read by pyiceberg, so rows of it cannot be replaced",
            object_name=".".join(table.name()),
            found=str(cause)[:200],
            action="rewrite its data files so that it has no equality deletes",
        ) from cause
    for task in tasks:
        is_replaced = changed.is_replaced(_read(table, task, key_columns))
        if is_replaced.any():
            rows = _read(table, task, table.schema())
            yield task, rows.filter(pa.array(np.logical_not(is_replaced)))


def _key_filter(changed: ChangedKeys) -> BooleanExpression:
    """Which files can hold a changed key, as far as partitions and statistics can tell."""
    wanted: BooleanExpression = AlwaysTrue()
    for name in changed.key:
        column = changed.keys[name]
        if not len(column) or column.null_count:
            continue
        values = pc.unique(column)
        if len(values) <= KEYS_NAMED_MAX:
            each = _IN(name, set(values.to_pylist()))
        else:
            ends = pc.min_max(column).as_py()
            each = And(_AT_LEAST(name, ends["min"]), _AT_MOST(name, ends["max"]))
        wanted = And(wanted, each)
    return wanted


def _read(table: Table, task: FileScanTask, columns: Schema) -> pa.Table:
    """Columns of a file, in its order, without rows that are deleted from it."""
    return ArrowScan(table.metadata, table.io, columns, AlwaysTrue()).to_table([task])
