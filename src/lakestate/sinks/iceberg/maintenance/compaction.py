"""Merges small data files of a table, in snapshots that change no rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation

from lakestate.errors import ConflictError
from lakestate.sinks.iceberg.commits.change import commit_updates
from lakestate.sinks.iceberg.commits.replacement import has_partitions_by_double
from lakestate.sinks.iceberg.commits.snapshots import ReplaceSnapshot
from lakestate.sinks.iceberg.commits.written_rows import write_rows
from lakestate.sinks.iceberg.files import IcebergFiles
from lakestate.sinks.iceberg.maintenance.references import remove_files

ATTEMPTS_MAX = 5
SUMMARY = {"lakestate.maintenance": "compact"}
GROUPS_MAX = 16
"""As many groups of files are merged each time: the rest waits."""


def compact(
    load: Callable[[], Table],
    files: Callable[[Table], IcebergFiles],
    target_bytes: int,
    is_replaced_anyway: Callable[[str], bool],
) -> None:
    """Merge small files, except those that their sink replaces itself.

    A table with delete files is left alone: deletes apply to files by their age, and a merged file is new.
    """
    table = load()
    if has_partitions_by_double(table) or _has_deletes(table):
        return
    groups = list(_groups(table, target_bytes, is_replaced_anyway))[:GROUPS_MAX]
    if not groups:
        return
    written = []
    for group in groups:
        rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(group)
        written += write_rows(table, files(table), rows)
    removed = {task.file.file_path for group in groups for task in group}
    if not _replace(load, removed, written):
        # Others commit all the time, or have touched these files. Next time there is another chance.
        remove_files(table, [file.file_path for file in written])


def _replace(load: Callable[[], Table], removed: set[str], written: list[DataFile]) -> bool:
    """Put files in the place of others. False if that is known not to have happened.

    An error that leaves it open is raised: then nothing may be removed.
    """
    for _ in range(ATTEMPTS_MAX):
        table = load()
        if _has_deletes(table):
            return False
        replace = ReplaceSnapshot(
            Operation.OVERWRITE, table.transaction(), table.io, snapshot_properties=SUMMARY
        )
        replace.removed = removed
        for file in written:
            replace.append_data_file(file)
        try:
            updates, _ = replace._commit()
            commit_updates(table, {}, updates)
            return True
        except ConflictError:
            return False
        except CommitFailedException:
            # A proxy may have sent it twice, and answered for the second.
            if load().metadata.snapshot_by_id(replace.snapshot_id) is not None:
                return True
            replace._clean_all_uncommitted()
    return False


def _has_deletes(table: Table) -> bool:
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    return any(each.content == ManifestContent.DELETES for each in manifests)


def _groups(
    table: Table, target_bytes: int, is_replaced_anyway: Callable[[str], bool]
) -> Iterator[list[FileScanTask]]:
    """Files of one partition that together have about the wanted size; at least two."""
    spec_id = table.spec().spec_id
    small: dict[str, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        file = task.file
        is_small = file.file_size_in_bytes < target_bytes // 2 and file.spec_id == spec_id
        if is_small and not is_replaced_anyway(file.file_path):
            small.setdefault(repr(file.partition), []).append(task)
    for tasks in small.values():
        group: list[FileScanTask] = []
        for task in sorted(tasks, key=lambda each: each.file.file_path):
            group.append(task)
            if sum(each.file.file_size_in_bytes for each in group) >= target_bytes:
                yield group
                group = []
        if len(group) > 1:
            yield group
