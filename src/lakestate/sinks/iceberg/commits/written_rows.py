"""Rows written by the driver as data files of a table: one file for each partition.

pyiceberg computes `bucket`, `truncate` and times only with another package; partitions are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, WriteTask
from pyiceberg.typedef import Record

from lakestate.sinks.iceberg.files import IcebergFiles


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition as pyiceberg asks for it."""

    folder: str
    partition: Record

    def to_path(self) -> str:
        """The folders of its files."""
        return self.folder


def write_rows(table: Table, files: IcebergFiles, rows: pa.Table) -> list[DataFile]:
    """Write rows, in the columns of `files`. Nothing refers to the data files yet."""
    found: dict[str, list[pa.RecordBatch]] = {}
    for batch in rows.to_batches():
        for folder, part in files.partitioning.split(batch, None):
            found.setdefault(folder, []).append(part)
    schema = pyarrow_to_schema(files.columns, name_mapping=table.schema().name_mapping)
    unique = uuid4()
    tasks = [
        WriteTask(unique, number, schema, parts, partition_key=cast(Any, _partition(files, folder)))
        for number, (folder, parts) in enumerate(sorted(found.items()))
    ]
    written = list(write_file(table.io, table.metadata, iter(tasks)))
    for file in written:
        file.spec_id = files.facts.spec_id
    return written


def _partition(files: IcebergFiles, folder: str) -> _Partition | None:
    if not files.facts.fields:
        return None
    folders = folder.split("/")
    values = [field.value(each) for field, each in zip(files.facts.fields, folders, strict=True)]
    return _Partition(folder, Record(*values))
