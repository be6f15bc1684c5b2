"""The rows of a state table in one epoch, from the stored declaration alone.

Overwritten, removed and expired rows are resolved by the table types themselves, subtask by subtask,
so that what is read is what a restored operator would see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakestate.config import StoreConfig
from lakestate.errors import CorruptionError, IncompatibleStateError, NotFoundError
from lakestate.inspection.job_names import job_not_found, nearest_hint
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.metadata import Manifest, SubtaskMetadata, TableFiles
from lakestate.protocol.rescale import clip_files
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.context import TableContext
from lakestate.tables.contract import Table
from lakestate.tables.registry import merge_table, table_of
from lakestate.tables.restore import check_compatible
from lakestate.tables.runs.partial_read import narrow_range


def read_state(
    url: str | Path | StoreConfig,
    job: str,
    operator: str,
    table: str | Table,
    epoch: Epoch | int | None = None,
) -> pa.Table:
    """What a state table held at the end of an epoch; of the newest one if none is named.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-read-state")
    >>> totals = ls.KeyedTable("totals", key="user string", value="n bigint")
    >>> tables = ls.TableManager.load(ls.TaskInfo("shop", "count"), [totals], backend, restore_from=None)
    >>> for epoch, n in ((1, 10), (2, 20)):
    ...     tables.keyed("totals").put(pa.table({"user": ["ann"], "n": [n]}))
    ...     done = tables.checkpoint(epoch, min_epoch=1, watermark=None, then_stop=False)
    ...     record = backend.write_checkpoint_metadata("shop", epoch, [done])
    >>> ls.read_state("memory://docs-read-state", "shop", "count", "totals").to_pylist()
    [{'user': 'ann', 'n': 20}]
    >>> ls.read_state("memory://docs-read-state", "shop", "count", "totals", epoch=1).to_pylist()
    [{'user': 'ann', 'n': 10}]

    Nothing needs to be declared: columns come from the stored declaration. A `StoreConfig` in place of
    the URL carries options of the store. Keys and values of a `GlobalKeyedTable` are columns `key` and
    `value`: of an Arrow type for `str`, `int`, `float`, `bool` and `bytes`, as text for dates, UUIDs and
    decimals, and otherwise as JSON. Rows have no particular order.

    If the epoch holds rows of several state versions, only the migrations of the declared table can
    bring them together: pass the table instead of its name. Without it, IncompatibleStateError is
    raised. NotFoundError is raised for a job, operator, table or epoch that does not exist.
    """
    return StateSource.open(url, job, operator, table, epoch).reader().read_all()


@dataclass(frozen=True)
class StateSource:
    """A state table in one epoch, whose rows can be read any number of times."""

    backend: StateBackend
    manifest: Manifest
    operator_id: str
    table: Table
    parts: Sequence[tuple[SubtaskMetadata, TableFiles]]
    """The table's files, by the subtask that holds them; one part if all subtasks share the table."""

    @classmethod
    def open(
        cls,
        url: str | Path | StoreConfig,
        job: str,
        operator: str,
        table: str | Table,
        epoch: Epoch | int | None,
    ) -> StateSource:
        """Find the table below a checkpoint URL, and check that all its files can be read."""
        backend = StateBackend(url, cache_bytes=0)
        return cls.find(backend, backend.objects(job), _manifest(backend, job, epoch), operator, table)

    @classmethod
    def find(
        cls, backend: StateBackend, objects: JobObjects, manifest: Manifest, operator: str, table: str | Table
    ) -> StateSource:
        """Find the table in an epoch, and check that all its files can be read."""
        stored = objects.read_subtasks(manifest.require_operator(operator).subtasks)
        found = _find_table(stored, table, manifest, operator)
        source = cls(backend, manifest, operator, found, _parts(stored, found))
        source._check_versions()
        return source

    def clip_to(self, keys: KeyRange) -> StateSource:
        """The same for some of the keys, without what only others need. It travels to other processes."""
        parts = [
            (
                replace(metadata, key_range=held, tables=(), configs=()),
                replace(files, files=clip_files(files.files, held)),
            )
            for metadata, files in self.parts
            if (held := metadata.key_range.intersection(keys)) is not None
        ]
        return replace(self, manifest=self._small_manifest, parts=parts)

    @cached_property
    def _small_manifest(self) -> Manifest:
        """What reading rows needs of the manifest."""
        entry = replace(self.manifest.require_operator(self.operator_id), subtasks=())
        return replace(self.manifest, operators=(entry,), sinks=(), engine_files=(), engine_logs=())

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return next(self._readers(None, None)).schema

    def reader(self) -> pa.RecordBatchReader:
        """The rows, a batch at a time. Memory follows the size of row groups, not of the state."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def batches(
        self, columns: Sequence[str] | None = None, keys: Mapping[str, pa.Array] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows with some columns; with `keys`, at least those with these values in key columns."""
        with self.guard():
            for reader in self._readers(columns, keys):
                yield from reader

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Tell a file that retention has deleted meanwhile from damage."""
        try:
            yield
        except CorruptionError:
            open_epoch(self.backend.objects(self.manifest.job_id), self.manifest.epoch)
            raise

    def _readers(
        self, columns: Sequence[str] | None, keys: Mapping[str, pa.Array] | None
    ) -> Iterator[pa.RecordBatchReader]:
        routing = None if keys is None else self.table.routing_keys_of(keys)
        wanted = None if routing is None else np.unique(routing)
        for metadata, files in self.parts:
            context = self.context(metadata)
            if wanted is not None and narrow_range(metadata.key_range, wanted) is None:
                continue
            if columns is None:
                yield self.table.stored_rows(files, context)
            else:
                yield self.table.stored_columns(files, context, columns, wanted)

    def context(self, metadata: SubtaskMetadata) -> TableContext:
        """Time as it was at the end of the epoch, so that reading it again gives the same rows."""
        task = TaskInfo(
            metadata.job_id,
            metadata.operator_id,
            metadata.subtask_index,
            metadata.parallelism,
            self.manifest.generation,
        )
        return TableContext(
            task=task,
            objects=self.backend.objects(metadata.job_id),
            cache=None,
            ambient=self.backend.ambient,
            watermark_us=self._watermark_us,
            now_us=self.manifest.finished_ms * 1000,
        )

    @cached_property
    def _watermark_us(self) -> int | None:
        entry = self.manifest.operator(self.operator_id)
        own_us = None if entry is None else entry.watermark_us
        return self.manifest.watermark_us if own_us is None else own_us

    def _check_versions(self) -> None:
        files = {file.path: file for _, part in self.parts for file in part.files}.values()
        if all(self.table.can_read(file) for file in files):
            return
        counts = {
            version: sum(file.state_version == version for file in files)
            for version in sorted({file.state_version for file in files})
        }
        raise IncompatibleStateError(
            f"table {self.table.name} holds rows of another state version than its declaration",
            object_name=f"operator {self.operator_id} in epoch {self.manifest.epoch}",
            found=", ".join(f"{count} files of version {version}" for version, count in counts.items()),
            expected=f"version {self.table.config.state_version}",
            action="pass the declared table, with its migrations, instead of its name",
        )


def _manifest(backend: StateBackend, job: str, epoch: Epoch | int | None) -> Manifest:
    try:
        return backend.load_checkpoint_metadata(job, epoch)
    except NotFoundError as cause:
        unknown = job_not_found(backend.objects(job))
        if unknown is None:
            raise
        raise unknown from cause


def _find_table(
    stored: Sequence[SubtaskMetadata], table: str | Table, manifest: Manifest, operator: str
) -> Table:
    """The declared table, or the one of the stored declaration under that name."""
    name = table if isinstance(table, str) else table.name
    configs = {config.name: config for metadata in stored for config in metadata.configs}
    where = f"operator {operator} in epoch {manifest.epoch} of job {manifest.job_id}"
    if name not in configs:
        raise NotFoundError(
            f"{where} has no such table",
            object_name=name,
            found=", ".join(sorted(configs)) or "no table",
            action=nearest_hint(name, configs),
        )
    newest = max(
        (metadata.config(name) for metadata in stored),
        key=lambda config: 0 if config is None else config.state_version,
    )
    assert newest is not None
    if isinstance(table, str):
        return table_of(newest)
    check_compatible(table, newest, where)
    return table


def _parts(stored: Sequence[SubtaskMetadata], table: Table) -> list[tuple[SubtaskMetadata, TableFiles]]:
    held = {metadata.subtask_index: metadata.table(table.name) for metadata in stored}
    files = {index: part for index, part in held.items() if part is not None}
    if table.table_type.is_replicated:
        return [(stored[0], merge_table(table.config, files))]
    return [
        (metadata, merge_table(table.config, {metadata.subtask_index: files[metadata.subtask_index]}))
        for metadata in stored
        if metadata.subtask_index in files
    ]
