"""What a query reads, planned on the driver and cut into partitions that tasks read by themselves.

A partition takes along the references to its files, so that tasks read no metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lakestate.errors import NotFoundError
from lakestate.inspection import Checkpoint, StateChanges, TableHistory
from lakestate.inspection import open as open_checkpoint
from lakestate.inspection.row_filter import RowFilter, parse_where, require_columns
from lakestate.inspection.row_source import RowSource
from lakestate.inspection.splitting import split_changes, split_table
from lakestate.protocol.values import Epoch
from lakestate.spark.data_source.reading.options import ReadOptions
from lakestate.spark.versions.data_sources import InputPartition
from lakestate.tables.arrow.schema import columns_of

EPOCH = "_epoch"
"""The column with the epoch that a change belongs to."""


class RowsOfPart(InputPartition):
    """Some rows of a table, or some changes, with the epoch that they belong to."""

    def __init__(self, rows: RowSource, epoch: Epoch | None) -> None:
        super().__init__(repr(rows))
        self.rows = rows
        self.epoch = epoch

    def batches(self, where: Mapping[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that match, with the columns that the query was planned with."""
        names = [name for name in schema.names if name != EPOCH]
        for batch in self.rows.reader(where or None, names):
            columns = dict(zip(names, batch.columns, strict=True))
            if EPOCH in schema.names:
                columns[EPOCH] = pa.array([self.epoch] * batch.num_rows, pa.int64())
            arrays = [columns[field.name].cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def checkpoint_of(options: ReadOptions) -> Checkpoint:
    """The jobs below the path of a query."""
    return open_checkpoint(options.checkpoint)


def history_of(options: ReadOptions) -> TableHistory:
    """The table of a query, over all epochs."""
    job, operator, table = options.table_names()
    return checkpoint_of(options).job(job).table(operator, table)


def row_schema(options: ReadOptions) -> pa.Schema:
    """The columns of the rows of an epoch."""
    return _selected(history_of(options).at(options.epoch).schema, options)


def change_schema(options: ReadOptions) -> pa.Schema:
    """The columns of changes, as the newest epoch has them."""
    changes = history_of(options).changes(None, options.end_epoch or "newest")
    return _selected(changes.schema.append(pa.field(EPOCH, pa.int64())), options)


def spark_columns(schema: pa.Schema) -> str:
    """A schema in Spark's notation."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns_of(schema, what="row"))


def plan_rows(options: ReadOptions, where: Mapping[str, Any]) -> list[RowsOfPart]:
    """The rows of one epoch, by key range."""
    table = history_of(options).at(options.epoch)
    rows = parse_where(where or None, table.schema, table.name)
    return [RowsOfPart(part, table.epoch) for part in split_table(table, rows, options.part_bytes)]


def plan_changes(options: ReadOptions, where: Mapping[str, Any]) -> list[RowsOfPart]:
    """The changes of several epochs, each by key range."""
    history = history_of(options)
    job = checkpoint_of(options).job(options.table_names()[0])
    last = job.epoch(options.end_epoch or "newest").epoch
    return plan_changes_between(history, job.open_epochs(), options.start_epoch, last, where)


def plan_changes_between(
    history: TableHistory, epochs: Sequence[Epoch], first: int | None, last: int, where: Mapping[str, Any]
) -> list[RowsOfPart]:
    """The changes of epochs from the first to the last; None stands for the oldest, with all its rows.

    Epochs between them that are gone are folded into the next one. The one before the first and the last
    must be there.
    """
    if first is not None and first > last:
        return []
    after = 0 if first is None else first - 1
    missing = [epoch for epoch in (after or first, last) if epoch is not None and epoch not in epochs]
    if missing:
        raise epochs_gone_error(history, missing, epochs)
    chain = [after, *(epoch for epoch in epochs if after < epoch <= last)]
    parts: list[RowsOfPart] = []
    for before, epoch in pairwise(chain):
        changes = history.changes(before or None, epoch)
        rows = _parse_filter(changes, where)
        parts += [RowsOfPart(part, Epoch(epoch)) for part in split_changes(changes, rows)]
    return parts


def epochs_gone_error(
    history: TableHistory, missing: Sequence[int], epochs: Sequence[Epoch]
) -> NotFoundError:
    """The error for changes that begin or end with an epoch that cannot be opened."""
    oldest = min(epochs, default=None)
    return NotFoundError(
        "changes cannot be read, because epochs that they begin or end with are not there",
        object_name=repr(history),
        found=f"epochs {_shown(epochs)}",
        expected=f"epoch {', '.join(map(str, missing))}",
        action=(
            f"begin with startEpoch={1 if oldest is None else oldest + 1} or later and read the rows of the "
            "epoch before it once; a stream begins anew with a new checkpointLocation. Keep more epochs, or "
            "tag the epoch that a reader has reached, so that it does not happen again"
        ),
    )


def _parse_filter(changes: StateChanges, where: Mapping[str, Any]) -> RowFilter:
    return parse_where(where or None, changes.schema, changes.name)


def _selected(schema: pa.Schema, options: ReadOptions) -> pa.Schema:
    if options.columns is None:
        return schema
    names = require_columns(options.columns, schema, str(options.table))
    return pa.schema([schema.field(name) for name in names])


def _shown(epochs: Sequence[Epoch]) -> str:
    shown = [str(epoch) for epoch in epochs]
    return ", ".join(shown) if len(shown) <= 6 else f"{', '.join(shown[:3])}, …, {', '.join(shown[-2:])}"
