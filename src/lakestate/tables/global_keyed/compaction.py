"""Merging files of a global keyed table into one, beside the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakestate.protocol.compaction import CompactionPlan, CompactionPolicy, plan_compaction
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
from lakestate.tables.global_keyed.layer_cache import keep_entries
from lakestate.tables.global_keyed.layer_plan import group_by_epoch
from lakestate.tables.global_keyed.packing import pack_bytes
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
    """Merge the files of the epochs that the policy picks. None if it picks none.

    Always all files of an epoch, of all subtasks: the merged file has one place in the order of (epoch,
    subtask). If other files of the same epochs were left beside it, an old value would hide a newer one.
    """
    ordered = newest_first(files.files)
    plan = _plan_whole_epochs(ordered, policy)
    if plan is None:
        return None
    group = ordered[plan.start : plan.stop]
    stored_as = _config_of_merge(config, codec, group)
    if stored_as is None:
        return None
    entries = _newest_entries(group, stored_as, codec, context)
    if plan.reaches_oldest:
        # Otherwise a removed key would return from an older file.
        entries = {key: value for key, value in entries.items() if value is not None}
    merged = _store_merge(entries, stored_as, codec, group, epoch, context) if entries else ()
    return CompactedFiles(files.table, group, merged, keeps_removals=not plan.reaches_oldest)


def merge_entries(
    files: Sequence[FileRef], config: TableConfig, codec: EntryCodec | None, context: TableContext
) -> dict[bytes, bytes]:
    """The live entries of files, given newest first, in the version of the declaration."""
    entries = _newest_entries(files, config, codec, context)
    return {key: value for key, value in entries.items() if value is not None}


def _newest_entries(
    files: Sequence[FileRef], config: TableConfig, codec: EntryCodec | None, context: TableContext
) -> dict[bytes, bytes | None]:
    entries: dict[bytes, bytes | None] = {}
    for stored in read_entries(tuple(reversed(files)), config, context):
        entries.update(_in_version(stored, config.state_version, codec))
    return entries


def _plan_whole_epochs(files: Sequence[FileRef], policy: CompactionPolicy) -> CompactionPlan | None:
    """What the policy picks, and the other files of the same epochs.

    The subtasks of an epoch count as a small file together, not each of them: otherwise the small files
    of a few epochs would count as much as a large one, and rewrite it.
    """
    epochs = group_by_epoch(files)
    floor_bytes = policy.size_floor_bytes * len(epochs) // max(len(files), 1)
    plan = plan_compaction(files, replace(policy, size_floor_bytes=floor_bytes))
    if plan is None:
        return None
    newest, oldest = files[plan.start].epoch, files[plan.stop - 1].epoch
    start = sum(file.epoch > newest for file in files)
    stop = sum(file.epoch >= oldest for file in files)
    return CompactionPlan(start, stop, reaches_oldest=stop == len(files))


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
    if codec is None:
        return zip(stored.keys, stored.values, strict=True)
    keys = codec.canonical_keys(stored.keys, stored.shown)
    if stored.state_version == version:
        return zip(keys, stored.values, strict=True)
    live = [(key, value) for key, value in zip(keys, stored.values, strict=True) if value is not None]
    found, raw = [key for key, _ in live], [value for _, value in live]
    migrated = codec.migrate_values(raw, found, stored.state_version, stored.shown)
    values = dict(zip(found, migrated, strict=True))
    return zip(keys, map(values.get, keys), strict=True)


def _store_merge(
    entries: dict[bytes, bytes | None],
    config: TableConfig,
    codec: EntryCodec | None,
    group: Sequence[FileRef],
    epoch: Epoch,
    context: TableContext,
) -> tuple[FileRef, ...]:
    rows = entry_rows(pack_bytes(list(entries)), pack_bytes(list(entries.values())))
    file = write_entries(rows, config, context, epoch, MERGED_SUBTASK)
    if codec is not None:
        # Without types nobody knows whether keys are encoded as they would be now.
        keep_entries(rows, file, config, context)
    fingerprint = config.schema_fingerprint
    if config.state_version == group[0].state_version:
        fingerprint = group[0].schema_fingerprint
    # As old as the newest file it replaces: files of later epochs must hide it.
    return (replace(file, epoch=group[0].epoch, schema_fingerprint=fingerprint),)
