"""Merging all files of a global keyed table into one, beside the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakestate.protocol.compaction import CompactionPolicy, plan_compaction
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.values import Epoch, FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.global_keyed.files import (
    StoredEntries,
    entry_rows,
    newest_first,
    read_entries,
    write_entries,
)
from lakestate.tables.global_keyed.value_codec import EntryCodec

# Only this subtask carries the merged file, at any parallelism.
MERGED_SUBTASK = 0


def compact_entries(
    config: TableConfig,
    codec: EntryCodec | None,
    files: TableFiles,
    policy: CompactionPolicy,
    epoch: Epoch,
    context: TableContext,
) -> CompactedFiles | None:
    """Merge all files of all subtasks, or none of them.

    Never only some: the merged file has one place in the order of (epoch, subtask). If other files of
    the same epochs were left beside it, an old value would hide a newer one, and a removed key that is
    dropped here would return from an older file.
    """
    group = newest_first(files.files)
    stored_as = _config_of_merge(config, codec, group)
    if stored_as is None or not is_worth_merging(group, policy):
        return None
    live = merge_entries(group, stored_as, codec, context)
    merged = _store_merge(live, stored_as, group, epoch, context) if live else ()
    return CompactedFiles(files.table, group, merged)


def merge_entries(
    files: Sequence[FileRef], config: TableConfig, codec: EntryCodec | None, context: TableContext
) -> dict[bytes, bytes]:
    """The live entries of files, given newest first, in the version of the declaration."""
    entries: dict[bytes, bytes | None] = {}
    for stored in read_entries(tuple(reversed(files)), config, context):
        entries.update(_in_version(stored, config.state_version, codec))
    return {key: value for key, value in entries.items() if value is not None}


def is_worth_merging(files: Sequence[FileRef], policy: CompactionPolicy) -> bool:
    """Whether the policy would merge down to the oldest file, or there are too many files."""
    plan = plan_compaction(files, policy)
    return plan is not None and (plan.reaches_oldest or len(files) > policy.files_max)


def _config_of_merge(
    config: TableConfig, codec: EntryCodec | None, files: Sequence[FileRef]
) -> TableConfig | None:
    """The declaration that the merged file is stored under. None if the files differ in version.

    With the types, older files are migrated to the declared version. Without types the bytes stay as
    they are, which is possible only if all files have one version.
    """
    if codec is not None:
        return config
    versions = {file.state_version for file in files}
    return replace(config, state_version=versions.pop()) if len(versions) == 1 else None


def _in_version(
    stored: StoredEntries, version: int, codec: EntryCodec | None
) -> zip[tuple[bytes, bytes | None]]:
    if stored.state_version == version or codec is None:
        return zip(stored.keys, stored.values, strict=True)
    live = [(key, value) for key, value in zip(stored.keys, stored.values, strict=True) if value is not None]
    keys, raw = [key for key, _ in live], [value for _, value in live]
    values = dict(zip(keys, codec.migrate_values(raw, keys, stored.state_version, stored.shown), strict=True))
    return zip(stored.keys, map(values.get, stored.keys), strict=True)


def _store_merge(
    live: dict[bytes, bytes],
    config: TableConfig,
    group: Sequence[FileRef],
    epoch: Epoch,
    context: TableContext,
) -> tuple[FileRef, ...]:
    rows = entry_rows(list(live), list(live.values()))
    file = write_entries(rows, config, context, epoch, MERGED_SUBTASK)
    fingerprint = config.schema_fingerprint
    if config.state_version == group[0].state_version:
        fingerprint = group[0].schema_fingerprint
    # As old as the newest file it replaces: files of later epochs must hide it.
    return (replace(file, epoch=group[0].epoch, schema_fingerprint=fingerprint),)
