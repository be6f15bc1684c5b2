"""Which file each row of an Iceberg table goes to: one file per tuple of partition values.

Rows are brought into the table's schema first, so that transforms see the table's own types.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.sinks.iceberg.partition_values import PartitionField, distinct_values
from lakestate.sinks.iceberg.transforms import PERIODS, apply_transform
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.partitioning.partitioner import Codes, Partitioning
from lakestate.sinks.table_format.rows import conform_rows

_PATTERNS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}


@dataclass(frozen=True, slots=True)
class IcebergPartitioning(Partitioning):
    """By the partition fields of a table. `by` holds their names; their columns stay in the files."""

    fields: tuple[PartitionField, ...] = ()
    rows: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The schema of the files, with field ids."""
    event_time_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """None: all columns are in the files."""
        return ()

    @property
    def event_time(self) -> EventTime | None:
        """The finest period of the stream's event time that files are partitioned by, if any."""
        if self.event_time_column is None:
            return None
        periods = {each.transform for each in self.fields if each.column == self.event_time_column}
        finest = next((period for period in reversed(PERIODS) if period in periods), None)
        return None if finest is None else EventTime(_PATTERNS[finest])

    def check(self, schema: pa.Schema, event_time: str | None) -> None:
        """Nothing to do: the table's schema has been compared already."""

    def split(self, batch: pa.RecordBatch, event_time: str | None) -> list[tuple[str, pa.RecordBatch]]:
        """The rows of each partition in the table's schema, in the order they came."""
        return Partitioning.split(self, conform_rows(batch, self.rows), event_time)

    def _encode_partitions(self, batch: pa.RecordBatch, event_time: str | None) -> tuple[Codes, list[str]]:
        codes, paths = np.zeros(len(batch), np.int64), [""]
        for each in self.fields:
            more, folders = _folders(each, batch)
            present, codes = np.unique(codes * len(folders) + more, return_inverse=True)
            parts = [divmod(code, len(folders)) for code in present.tolist()]
            paths = [f"{paths[old]}/{folders[new]}".lstrip("/") for old, new in parts]
        return codes, paths


def _folders(each: PartitionField, batch: pa.RecordBatch) -> tuple[Codes, list[str]]:
    source = _source(each.column, batch)
    if source is None:
        return np.zeros(len(batch), np.int64), [each.folder(None)]
    indices, values = distinct_values(apply_transform(source, each.transform))
    numbers = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, [each.folder(value) for value in values]


def _source(column: str | None, batch: pa.RecordBatch) -> pa.Array | None:
    """The source column; None if the files leave it out: every transform of null is null."""
    if column is None:
        return None
    if column in batch.schema.names:
        return batch.column(column)
    top, _, rest = column.partition(".")
    if top not in batch.schema.names:
        return None
    return pc.struct_field(batch.column(top), rest.split("."))
