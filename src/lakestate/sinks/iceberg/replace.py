"""Replacing all rows of an Iceberg table in one commit, by those of a state table at one epoch.

The snapshot says whose rows it holds. Whoever comes later with an earlier epoch, such as a driver that was
suspended, finds that out by it and changes nothing: the commit requires the snapshot that was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, TableRequirement

from lakestate.errors import ConflictError, IncompatibleStateError, InvalidInputError, OutcomeUnknownError
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.catalog_calls import UNREACHABLE
from lakestate.sinks.iceberg.rows import assign_field_ids
from lakestate.sinks.iceberg.table import create_table

ATTEMPTS_MAX = 5
_SOURCE, _EPOCH, _STATE = (f"lakestate.export.{name}" for name in ("source", "epoch", "state"))


@dataclass(frozen=True, slots=True)
class ExportIdentity:
    """Whose rows a snapshot holds."""

    job: str
    operator: str
    table: str
    epoch: int
    state_id: str
    """A job whose state was deleted counts its epochs anew, under another identity."""
    part: str = ""
    """Which of its rows, if not all."""

    @property
    def source(self) -> str:
        """The rows of the state table, at any epoch."""
        return f"{self.job}/{self.operator}/{self.table}" + (f" where {self.part}" if self.part else "")


@dataclass(frozen=True, slots=True)
class Replaced:
    """What the table holds now."""

    epoch: int
    rows: int
    is_new: bool


def replace_rows(
    catalog: IcebergCatalog,
    name: str,
    identity: ExportIdentity,
    make_rows: Callable[[], pa.RecordBatchReader],
    tell: Callable[[int], None],
    *,
    overwrite: bool,
) -> Replaced:
    """Put rows in the place of all rows of a table, which is created if there is none.

    Without `overwrite`, a table that holds this epoch or a later one of the same state table stays as it is,
    and one that holds anything else is refused. Rows are streamed; a failure leaves the table as it was, and
    perhaps data files that no snapshot refers to.
    """
    opened = catalog.load()
    for _ in range(ATTEMPTS_MAX):
        rows = make_rows()
        table = _load_or_create(opened, name, rows.schema)
        found = None if overwrite else _held(table, name, identity)
        if found is not None and found.epoch >= identity.epoch:
            return found
        counted = _Counted(rows, _columns_of(table, rows.schema, name), tell)
        try:
            _commit(table, counted, identity)
        except CommitFailedException:
            # Somebody else has changed the table: look again.
            continue
        except UNREACHABLE as cause:
            raise OutcomeUnknownError(
                "a table may or may not have been replaced",
                object_name=name,
                action="export again: what was written already is found",
            ) from cause
        return Replaced(identity.epoch, counted.rows, is_new=True)
    raise ConflictError(
        "an Iceberg table is changed by somebody else all the time", object_name=name, action="try again"
    )


def _load_or_create(catalog: Catalog, name: str, schema: pa.Schema) -> Table:
    try:
        return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return create_table(catalog, name, schema, (), {})


def _held(table: Table, name: str, identity: ExportIdentity) -> Replaced | None:
    """What an earlier export left; None if the table is empty, or holds what a deleted state had."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return None
    summary = snapshot.summary.additional_properties
    if summary.get(_SOURCE) != identity.source:
        raise ConflictError(
            "an Iceberg table holds something else than this export",
            object_name=name,
            found=summary.get(_SOURCE, "rows that were not exported"),
            expected=identity.source,
            action="choose another name, or drop the table; lakestate export --overwrite replaces its rows",
        )
    if summary.get(_STATE) != identity.state_id:
        return None
    return Replaced(int(summary[_EPOCH]), _row_count(table), is_new=False)


def _columns_of(table: Table, rows: pa.Schema, name: str) -> pa.Schema:
    """The columns as the table stores them. Those that it does not have yet are added to it."""
    if table.spec().fields:
        raise IncompatibleStateError(
            "an export needs a table without partitions", object_name=name, found=str(table.spec())
        )
    wanted = pyarrow_to_schema(assign_field_ids(rows))
    missing = set(wanted.column_names) - set(table.schema().column_names)
    try:
        if missing:
            with table.update_schema() as update:
                update.union_by_name(wanted)
        stored = schema_to_pyarrow(table.schema(), include_field_ids=False)
        return pa.schema([stored.field(each) for each in rows.names])
    except (ValueError, TypeError) as cause:
        raise InvalidInputError(
            "rows do not fit into an Iceberg table", object_name=name, found=str(cause)
        ) from cause


def _commit(table: Table, rows: _Counted, identity: ExportIdentity) -> None:
    """Replace all rows, if the table's main branch is still where it was.

    pyiceberg's own commit would repeat a conflict without looking whose rows have come meanwhile.
    """
    properties = {_SOURCE: identity.source, _EPOCH: str(identity.epoch), _STATE: identity.state_id}
    transaction = table.transaction()
    # There is a warning if there is nothing to replace.
    change = transaction.overwrite if _row_count(table) else transaction.append
    change(rows.reader(), snapshot_properties=properties)
    main = table.metadata.refs.get(MAIN_BRANCH)
    requirements: tuple[TableRequirement, ...] = (
        AssertRefSnapshotId.model_validate(
            {"snapshot-id": None if main is None else main.snapshot_id, "ref": MAIN_BRANCH}
        ),
        AssertTableUUID(uuid=table.metadata.table_uuid),
    )
    table._do_commit(transaction._updates, requirements)


def _row_count(table: Table) -> int:
    snapshot = table.current_snapshot()
    summary = None if snapshot is None else snapshot.summary
    return 0 if summary is None else int(summary["total-records"] or 0)


class _Counted:
    """Rows in the types of a table, counted as they are written."""

    def __init__(self, rows: pa.RecordBatchReader, schema: pa.Schema, tell: Callable[[int], None]) -> None:
        self.rows = 0
        self._source = rows
        self._schema = schema
        self._tell = tell

    def reader(self) -> pa.RecordBatchReader:
        """The rows, once."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source:
            self.rows += batch.num_rows
            self._tell(self.rows)
            yield batch.cast(self._schema)
