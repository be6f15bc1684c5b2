"""The subtasks of an operator with one `TimeKeyTable`, driven through the table's lifecycle by hand.

Metadata goes through its stored form at every checkpoint, as it does in a job.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.ambient import SystemAmbient
from lakestate.codec import decode_subtask, encode_subtask
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.key_ranges import subtask_of
from lakestate.protocol.metadata import SubtaskMetadata, TableFiles
from lakestate.protocol.values import Epoch, FileRef, TaskInfo
from lakestate.storage import open_store
from lakestate.tables.arrow.conform import conform_columns
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.time_key.table import TimeKeyTable

if TYPE_CHECKING:
    from lakestate.storage.cache.run_cache import RunCache
    from lakestate.tables.time_key.view import TimeKeyView

EAGER = CompactionPolicy(files_min=2, files_max=2, size_floor_bytes=1 << 30)


@dataclass
class Subtask:
    context: TableContext
    files: TableFiles
    state: TimeKeyView
    stored: bytes = b""
    bytes_written: int = 0


@dataclass
class TimeKeyJob:
    table: TimeKeyTable
    parallelism: int = 1
    watermark_us: int | None = None
    cache: RunCache | None = None
    epoch: Epoch = field(default_factory=lambda: Epoch(1))
    merges: list[CompactedFiles] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.objects = JobObjects(open_store(f"memory://time-key-{uuid.uuid4().hex}"), "job")
        nothing = TableFiles(self.table.name, self.table.table_type)
        self.subtasks = [self._subtask(index, nothing) for index in range(self.parallelism)]
        self._published: tuple[list[bytes], int | None] = ([], self.watermark_us)
        self.checkpoint(self.watermark_us)

    def owner(self, rows: pa.Table) -> list[int]:
        """For each row the subtask that it is routed to."""
        keys = conform_columns(rows, self.table.layout.key_fields, "test")
        return [subtask_of(int(key), self.parallelism) for key in self.table.layout.hashes(keys)[0]]

    def insert(self, rows: pa.Table) -> None:
        for index, mine in self._routed(rows):
            self.subtasks[index].state.insert(mine)

    def delete(self, keys: pa.Table) -> None:
        for index, mine in self._routed(keys):
            self.subtasks[index].state.delete(mine)

    def checkpoint(self, watermark_us: int | None = None) -> None:
        """Store an epoch and continue, with this watermark from now on."""
        self.epoch = self.epoch.next()
        self.watermark_us = self.watermark_us if watermark_us is None else watermark_us
        for subtask in self.subtasks:
            self._checkpoint(subtask)
        self._published = ([subtask.stored for subtask in self.subtasks], self.watermark_us)

    def restore(self, parallelism: int | None = None) -> None:
        """Start again from the last checkpoint, with merges that have been done since."""
        stored, self.watermark_us = self._published
        parts = [decode_subtask(data, "test", "job") for data in stored]
        self.parallelism = len(parts) if parallelism is None else parallelism
        self.subtasks = [self._subtask(index, self._part(index, parts)) for index in range(self.parallelism)]

    def compact(self, index: int, policy: CompactionPolicy = EAGER) -> CompactedFiles | None:
        """Merge stored files beside the stream; the next restore swaps them in."""
        subtask = self.subtasks[index]
        merge = self.table.compact_data(subtask.files, policy, self.epoch, subtask.context)
        if merge is not None:
            self.merges.append(merge)
        return merge

    def files(self) -> list[FileRef]:
        return [file for subtask in self.subtasks for file in subtask.files.files]

    def paths(self) -> list[str]:
        return [file.path for file in self.files()]

    def rows(self) -> list[dict[str, object]]:
        """All rows of all subtasks."""
        return [
            row for subtask in self.subtasks for batch in subtask.state.scan() for row in batch.to_pylist()
        ]

    def _routed(self, rows: pa.Table) -> list[tuple[int, pa.Table]]:
        owners = self.owner(rows)
        places = {index: [p for p, owner in enumerate(owners) if owner == index] for index in set(owners)}
        return [(index, rows.take(mine)) for index, mine in places.items()]

    def _subtask(self, index: int, files: TableFiles) -> Subtask:
        task = TaskInfo("job", "op", index, self.parallelism)
        context = TableContext(task, self.objects, self.cache, SystemAmbient(), self.watermark_us, now_us=0)
        for merge in self.merges:
            files = self.table.apply_compacted_checkpoint(files, merge, task)
        return Subtask(context, files, self.table.open_view(files, context))

    def _part(self, index: int, parts: list[SubtaskMetadata]) -> TableFiles:
        task = TaskInfo("job", "op", index, self.parallelism)
        mine = {
            part.subtask_index: part.tables[0] for part in parts if part.key_range.overlaps(task.key_range)
        }
        merged = self.table.merge_checkpoint_metadata(self.table.config, mine)
        return self.table.subtask_metadata_from_table(self.table.config, merged, task)

    def _checkpoint(self, subtask: Subtask) -> None:
        context = replace(subtask.context, watermark_us=self.watermark_us)
        checkpointer = self.table.epoch_checkpointer(self.epoch, subtask.files, context)
        subtask.state.checkpoint_into(checkpointer)
        done = checkpointer.finish()
        task = subtask.context.task
        metadata = SubtaskMetadata(
            job_id="job",
            operator_id="op",
            subtask_index=task.subtask_index,
            parallelism=task.parallelism,
            epoch=self.epoch,
            generation=task.generation,
            attempt="a",
            key_range=task.key_range,
            started_ms=0,
            finished_ms=0,
            configs=(self.table.config,),
            tables=(done.files,),
        )
        subtask.stored, subtask.bytes_written = encode_subtask(metadata), done.bytes_written
        subtask.files = done.files
        subtask.context = context
        subtask.state.begin_next_epoch(done.files, context)


TS = pa.timestamp("us", tz="UTC")


def clicks(**options: object) -> TimeKeyTable:
    return TimeKeyTable("clicks", key="user string", value="n bigint, ts timestamp", **options)


def rows(*given: tuple[str | None, int, int]) -> pa.Table:
    """Rows of `clicks`: user, n, time."""
    users, numbers, times = zip(*given, strict=True)
    return pa.table({"user": pa.array(users, pa.string()), "n": pa.array(numbers), "ts": pa.array(times, TS)})


def users(*names: str | None) -> pa.Table:
    return pa.table({"user": pa.array(names, pa.string())})


def numbers(table: pa.Table) -> list[int]:
    return table.column("n").to_pylist()


def scanned(job: TimeKeyJob) -> list[int]:
    return sorted(int(row["n"]) for row in job.rows())
