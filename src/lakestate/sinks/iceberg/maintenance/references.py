"""Which files the snapshots of a table refer to, and removing those that none does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakestate.storage.parallel import map_in_parallel


@dataclass(frozen=True, slots=True)
class References:
    """All files that some snapshots need."""

    lists: frozenset[str]
    manifests: frozenset[str]
    data: frozenset[str]
    """Data and delete files."""

    @classmethod
    def of(cls, table: Table, snapshots: Iterable[Snapshot]) -> References:
        """Read the manifests of snapshots, each once."""
        found = list(snapshots)
        by_path = {each.manifest_path: each for one in found for each in one.manifests(table.io)}
        data = map_in_parallel(
            lambda manifest: {
                entry.data_file.file_path
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            },
            list(by_path.values()),
        )
        lists = frozenset(each.manifest_list for each in found)
        return cls(lists, frozenset(by_path), frozenset().union(*data))

    def without(self, needed: References) -> list[str]:
        """What others do not need: data files first, so that a crash leaves no manifest that misses one."""
        data = sorted(self.data - needed.data)
        return [*data, *sorted(self.manifests - needed.manifests), *sorted(self.lists - needed.lists)]


def remove_files(table: Table, paths: Iterable[str]) -> None:
    """Remove files; one that is gone is success."""
    for path in paths:
        try:
            table.io.delete(path)
        except FileNotFoundError:
            continue
