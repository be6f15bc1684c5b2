"""The stored metadata of one operator in one epoch, as a restoring subtask sees it.

A driver knows all of it and ships it with the plan: then no subtask reads metadata. The files of
replicated tables are merged once, on the driver, because every subtask needs those of all subtasks.
Without a driver, a subtask reads the objects itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from lakestate.codec import encode_subtask
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import OperatorEntry, SubtaskEntry, SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.relative_path import split_origin
from lakestate.protocol.rescale import needs_all_subtasks, plan_rescale
from lakestate.protocol.values import FileRef, TaskInfo
from lakestate.tables.contract import Table
from lakestate.tables.registry import merge_table

GoneFiles = Mapping[int, Mapping[str, tuple[FileRef, ...]]]
"""Files that are no longer needed, by subtask and table."""


@dataclass(frozen=True, slots=True)
class StoredOperator:
    """What a subtask takes its state from: the subtasks with keys of its own, and replicated tables."""

    configs: Mapping[str, TableConfig]
    """The stored declarations; of several versions the newest, which is the hardest to read."""
    replicated: Mapping[str, TableFiles]
    """The files of all subtasks, by table."""
    subtasks: Sequence[tuple[SubtaskEntry, SubtaskMetadata]]
    """Those whose keys overlap the subtask's, with digests of their commit data."""


@dataclass(frozen=True, slots=True)
class ShippedOperator:
    """The metadata of all subtasks of an operator, to be shipped to every subtask.

    A subtask decodes only what it needs: with P subtasks, decoding everything everywhere would cost P².
    """

    configs: Mapping[str, TableConfig]
    replicated: Mapping[str, TableFiles]
    """The files of all subtasks, by table."""
    subtasks: tuple[bytes, ...]
    """The metadata of each subtask, with digests of its commit data."""
    gone: Mapping[int, bytes] = field(default_factory=dict)
    """Files that the epoch no longer has, by table, pickled for each subtask. Hosts need not keep them."""

    def open(self, entry: OperatorEntry, task: TaskInfo, objects: JobObjects) -> StoredOperator:
        """What a subtask takes its state from."""
        wanted = plan_rescale(task, entry)
        encoded = {each.subtask_index: item for each, item in zip(entry.subtasks, self.subtasks, strict=True)}
        shipped = [(each, encoded[each.subtask_index]) for each in wanted]
        subtasks = [(each, objects.decode_shipped_subtask(each, data)) for each, data in shipped]
        return StoredOperator(self.configs, self.replicated, subtasks)

    def gone_files(self, subtask_index: int) -> Mapping[str, tuple[FileRef, ...]]:
        """The files that a subtask had and that are no longer needed, by table."""
        data = self.gone.get(subtask_index)
        if data is None:
            return {}
        # From the driver of this job, like everything that Spark ships. It is never stored.
        found: Mapping[str, tuple[FileRef, ...]] = pickle.loads(data)  # noqa: S301
        return found


def ship_operator(entry: OperatorEntry, objects: JobObjects, gone: GoneFiles) -> ShippedOperator:
    """What subtasks need of the metadata of an operator. What `objects` does not know yet is read."""
    encoded = objects.read_encoded_subtasks(entry.subtasks)
    metadata = [
        objects.decode_subtask(each, data) for each, data in zip(entry.subtasks, encoded, strict=True)
    ]
    configs = newest_configs(metadata)
    return ShippedOperator(
        configs,
        _merge_replicated(configs.values(), metadata),
        tuple(
            _encode_needed(each, found, data)
            for each, found, data in zip(entry.subtasks, metadata, encoded, strict=True)
        ),
        {index: pickle.dumps(files) for index, files in gone.items()},
    )


def digest_commit_data(metadata: SubtaskMetadata) -> SubtaskMetadata:
    """The metadata with digests of its commit data. That belongs to its epoch and is committed.

    The digest is all that a later epoch needs, to see whether it has the same to say. Output files may be
    part of commit data, so it can be large.
    """
    if all(table.commit_data is None for table in metadata.tables):
        return metadata
    return replace(metadata, tables=tuple(_digest_table(table) for table in metadata.tables))


def _digest_table(table: TableFiles) -> TableFiles:
    if table.commit_data is None:
        return table
    return replace(table, commit_data=blake2b(table.commit_data, digest_size=16).digest())


def _encode_needed(entry: SubtaskEntry, metadata: SubtaskMetadata, encoded: bytes) -> bytes:
    needed = digest_commit_data(metadata)
    is_stored_so = needed is metadata and split_origin(entry.metadata.path)[0] is None
    return encoded if is_stored_so else encode_subtask(needed)


def gone_files(before: SubtaskMetadata, now: SubtaskMetadata) -> dict[str, tuple[FileRef, ...]]:
    """The files that a subtask had in one epoch and has no more in a later one, by table."""
    kept = {file.path for table in now.tables for file in table.files}
    gone = {
        table.table: tuple(file for file in table.files if file.path not in kept) for table in before.tables
    }
    return {table: files for table, files in gone.items() if files}


def read_operator(
    entry: OperatorEntry, task: TaskInfo, tables: Iterable[Table], objects: JobObjects
) -> StoredOperator:
    """Read what a subtask takes its state from: its own keys, and all subtasks for replicated tables."""
    own = plan_rescale(task, entry)
    wanted = entry.subtasks if needs_all_subtasks(table.table_type for table in tables) else own
    metadata = objects.read_subtasks(wanted)
    configs = newest_configs(metadata)
    read = zip(wanted, metadata, strict=True)
    return StoredOperator(
        configs,
        _merge_replicated(configs.values(), metadata),
        [
            (each, digest_commit_data(found))
            for each, found in read
            if each.key_range.overlaps(task.key_range)
        ],
    )


def newest_configs(stored: Sequence[SubtaskMetadata]) -> dict[str, TableConfig]:
    """The stored declarations by table, of several versions the newest."""
    configs: dict[str, TableConfig] = {}
    for metadata in stored:
        for config in metadata.configs:
            known = configs.get(config.name)
            if known is None or config.state_version > known.state_version:
                configs[config.name] = config
    return configs


def _merge_replicated(
    configs: Iterable[TableConfig], stored: Sequence[SubtaskMetadata]
) -> dict[str, TableFiles]:
    return {
        config.name: merge_table(config, parts_of(config.name, stored))
        for config in configs
        if config.table_type.is_replicated
    }


def parts_of(table: str, stored: Iterable[SubtaskMetadata]) -> dict[int, TableFiles]:
    """The parts of a table by subtask."""
    return {
        metadata.subtask_index: files for metadata in stored if (files := metadata.table(table)) is not None
    }
