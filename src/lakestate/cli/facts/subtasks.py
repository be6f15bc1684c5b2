"""What the metadata of an epoch's subtasks says of its tables and sinks, as far as it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from lakestate.cli.cells import Bytes, duration_text, joined
from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest, OperatorEntry, SinkPreCommit, SubtaskMetadata, TableConfig
from lakestate.protocol.values import FileRef
from lakestate.sinks.files.pre_commit import PreCommit

_UNREADABLE = (CorruptionError, IncompatibleStateError)


@dataclass(frozen=True, slots=True)
class SeenTable:
    """One table of one operator: its newest declaration, and each of its files once."""

    operator_id: str
    config: TableConfig
    files: tuple[FileRef, ...]

    @property
    def size_bytes(self) -> int:
        """What the files take in the store."""
        return sum(file.size_bytes for file in self.files)

    @property
    def row_count(self) -> int:
        """Rows in the files; an overwritten key counts until compaction drops it."""
        return sum(file.row_count for file in self.files)


@dataclass(frozen=True, slots=True)
class SeenSubtasks:
    """The subtasks of an epoch as they were found."""

    tables: tuple[SeenTable, ...] = ()
    sinks: tuple[SinkPreCommit, ...] = ()
    damages: tuple[str, ...] = field(default=())

    def table_rows(self) -> Iterator[tuple[object, ...]]:
        """A row for each table."""
        for table in self.tables:
            config = table.config
            yield (
                table.operator_id,
                config.name,
                config.table_type.name,
                config.state_version,
                joined(config.key_columns),
                joined(config.value_columns),
                expiry_text(config),
                len(table.files),
                table.row_count,
                Bytes(table.size_bytes),
            )

    def file_rows(self) -> Iterator[tuple[object, ...]]:
        """A row for each data file, those with the newest rows first."""
        for table in self.tables:
            for file in sorted(table.files, key=lambda file: (-file.epoch, file.path)):
                keys = file.keys
                yield (
                    table.operator_id,
                    table.config.name,
                    file.epoch,
                    file.row_count,
                    file.removed_count,
                    Bytes(file.size_bytes),
                    None if keys is None else key_text(keys.first),
                    None if keys is None else key_text(keys.last),
                    file.path,
                )

    def operator_rows(self) -> Iterator[tuple[object, ...]]:
        """A row for each operator with tables, the largest first: what its files take."""
        total = sum(table.size_bytes for table in self.tables) or 1
        names = dict.fromkeys(table.operator_id for table in self.tables)
        held = {name: [table for table in self.tables if table.operator_id == name] for name in names}
        sizes = {name: sum(table.size_bytes for table in tables) for name, tables in held.items()}
        for name in sorted(names, key=lambda name: -sizes[name]):
            yield (
                name,
                len(held[name]),
                sum(len(table.files) for table in held[name]),
                sum(table.row_count for table in held[name]),
                Bytes(sizes[name]),
                f"{sizes[name] / total:.0%}",
            )

    def sink_rows(self) -> Iterator[tuple[object, ...]]:
        """A row for each sink: what it commits with the epoch, and how many files it keeps open."""
        for sink in self.sinks:
            finished, still_open = _file_counts(sink)
            yield sink.sink_id, Bytes(len(sink.data)), finished, still_open


def key_text(key: int) -> str:
    """A routing key, which is a hash, as people read it."""
    return f"{key:016x}"


def see_subtasks(job: JobObjects, manifest: Manifest) -> SeenSubtasks:
    """Read the metadata of all subtasks. What cannot be read is told, and left out."""
    damages: list[str] = []
    tables: list[SeenTable] = []
    for operator in manifest.operators:
        stored = list(_read_subtasks(job, operator, damages))
        names = sorted({config.name for metadata in stored for config in metadata.configs})
        tables += [_see_table(operator.operator_id, name, stored) for name in names]
    return SeenSubtasks(tuple(tables), manifest.sinks, tuple(damages))


def _read_subtasks(job: JobObjects, operator: OperatorEntry, damages: list[str]) -> Iterator[SubtaskMetadata]:
    with suppress(*_UNREADABLE):
        yield from job.read_subtasks(operator.subtasks)
        return
    # Reading all at once is fast, and stops at the first that is damaged.
    for entry in operator.subtasks:
        try:
            yield from job.read_subtasks([entry])
        except _UNREADABLE as error:
            damages.append(str(error))


def _see_table(operator_id: str, name: str, stored: list[SubtaskMetadata]) -> SeenTable:
    configs = [config for metadata in stored if (config := metadata.config(name)) is not None]
    parts = [part for metadata in stored if (part := metadata.table(name)) is not None]
    # After rescaling, two subtasks refer to one file.
    files = {file.path: file for part in parts for file in part.files}
    return SeenTable(
        operator_id, max(configs, key=lambda config: config.state_version), tuple(files.values())
    )


def expiry_text(config: TableConfig) -> str | None:
    """When rows of a table go by themselves."""
    if config.ttl_us is not None:
        return f"ttl {duration_text(config.ttl_us // 1000)}"
    if config.retention_us is not None:
        return f"retention {duration_text(config.retention_us // 1000)}"
    return None


def _file_counts(sink: SinkPreCommit) -> tuple[int | None, int | None]:
    """Finished and open files, of a sink that writes files."""
    try:
        parts = [PreCommit.decode(data) for data in decode_pre_commits(sink.data, sink.sink_id)]
    except CorruptionError:
        return None, None
    return sum(len(part.finished) for part in parts), sum(len(part.open) for part in parts)
