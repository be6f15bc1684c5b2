"""The stored metadata of one operator in one epoch, as a restoring subtask sees it.

A driver knows all of it and ships it with the plan: then no subtask reads metadata. The files of
replicated tables are merged once, on the driver, because every subtask needs those of all subtasks.
Without a driver, a subtask reads the objects itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import OperatorEntry, SubtaskEntry, SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.rescale import needs_all_subtasks, plan_rescale
from lakestate.protocol.values import FileRef, TaskInfo
from lakestate.tables.contract import Table
from lakestate.tables.registry import merge_table

_CODEC = "zstd"

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
    """Those whose keys overlap the subtask's."""


@dataclass(frozen=True, slots=True)
class ShippedOperator:
    """The metadata of all subtasks of an operator, to be shipped to every subtask. Pickles small.

    A subtask decodes only what it needs: with P subtasks, decoding everything everywhere would cost P².
    """

    configs: Mapping[str, TableConfig]
    replicated: Mapping[str, TableFiles]
    packed: bytes
    size_bytes: int
    gone: GoneFiles = field(default_factory=dict)
    """Files that the epoch no longer has, by subtask and table. Hosts need not keep them."""

    def open(self, entry: OperatorEntry, task: TaskInfo, objects: JobObjects) -> StoredOperator:
        """What a subtask takes its state from."""
        data = msgspec.msgpack.decode(
            pa.decompress(self.packed, self.size_bytes, codec=_CODEC, asbytes=True), type=list[bytes]
        )
        wanted = plan_rescale(task, entry)
        encoded = {each.subtask_index: item for each, item in zip(entry.subtasks, data, strict=True)}
        subtasks = [(each, objects.decode_subtask(each, encoded[each.subtask_index])) for each in wanted]
        return StoredOperator(self.configs, self.replicated, subtasks)


def ship_operator(entry: OperatorEntry, objects: JobObjects, gone: GoneFiles) -> ShippedOperator:
    """Pack the metadata of an operator. What `objects` does not know yet is read."""
    encoded = objects.read_encoded_subtasks(entry.subtasks)
    metadata = [
        objects.decode_subtask(each, data) for each, data in zip(entry.subtasks, encoded, strict=True)
    ]
    configs = newest_configs(metadata)
    packed = msgspec.msgpack.encode(encoded)
    return ShippedOperator(
        configs,
        _merge_replicated(configs.values(), metadata),
        pa.compress(packed, codec=_CODEC, asbytes=True),
        len(packed),
        gone,
    )


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
        [(each, found) for each, found in read if each.key_range.overlaps(task.key_range)],
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
