"""Carries out what `Maintenance` says, when it is time. Each step is safe whoever else works on the table.

Files are removed only if no snapshot of the table, as it is read again after the snapshots are gone, refers
to them. When it was last done is a property of the table, so that several sinks and restarts share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotsUpdate

from lakestate.config import duration_us, size_bytes
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.names import epoch_begun
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.iceberg.commits.change import commit_updates
from lakestate.sinks.iceberg.files import IcebergFiles
from lakestate.sinks.iceberg.maintenance.compaction import compact
from lakestate.sinks.iceberg.maintenance.references import References, remove_files
from lakestate.sinks.iceberg.maintenance.settings import Maintenance

LAST = "lakestate.maintained-ms"


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Which files of a table are of one sink, and which of them it still needs after a committed epoch."""

    fingerprint: str
    epoch: Epoch
    needed: frozenset[str]
    """The names of files that are open, or that the epoch finished."""
    are_replaced: bool
    """Whether the sink itself replaces its small files."""

    @classmethod
    def of(cls, epoch: Epoch, pre_commits: Sequence[bytes], *, are_replaced: bool) -> OwnFiles:
        """What the pre-commits of a committed epoch say."""
        decoded = [PreCommit.decode(data) for data in pre_commits]
        paths = [file.path for each in decoded for file in each.finished]
        paths += [file.path for each in decoded for file in each.open]
        return cls(decoded[0].fingerprint, epoch, frozenset(map(_name, paths)), are_replaced)

    def is_replaced_anyway(self, path: str) -> bool:
        """Whether a small file goes by itself."""
        return self.are_replaced and epoch_begun(path, self.fingerprint) is not None

    def is_dead(self, path: str) -> bool:
        """Whether the sink began a file by this epoch and needs it no more. Others' files are never dead."""
        begun = epoch_begun(path, self.fingerprint)
        return begun is not None and begun <= self.epoch and _name(path) not in self.needed


class TableUpkeep:
    """The maintenance of one table by one sink, after an epoch that is committed."""

    def __init__(
        self,
        settings: Maintenance,
        load: Callable[[], Table],
        files: Callable[[Table], IcebergFiles],
        own: OwnFiles,
        now_ms: int | None = None,
    ) -> None:
        self._settings = settings
        self._load = load
        self._files = files
        self._own = own
        self._now_ms = int(time.time() * 1000) if now_ms is None else now_ms

    def run_if_due(self) -> bool:
        """Do everything, if the last time is long enough ago. Returns whether it was."""
        table = self._load()
        last = table.properties.get(LAST, "0")
        every_ms = duration_us(self._settings.every) // 1000
        if last.isdecimal() and self._now_ms - int(last) < every_ms:
            return False
        # First, so that another driver does not do the same at the same time.
        commit_updates(table, {LAST: str(self._now_ms)}, ())
        settings = self._settings
        if settings.compact is not None:
            compact(self._load, self._files, size_bytes(settings.compact), self._own.is_replaced_anyway)
        if settings.keep_snapshots is not None:
            self._expire(duration_us(settings.keep_snapshots) // 1000)
        if settings.remove_orphans is not None:
            self._remove_orphans(duration_us(settings.remove_orphans) // 1000)
        return True

    def _expire(self, keep_ms: int) -> None:
        table = self._load()
        old = {each.snapshot_id: each for each in self._old_snapshots(table, keep_ms)}
        if not old:
            return
        before = References.of(table, old.values())
        # Reading took a while. Somebody may have tagged one of them.
        table = self._load()
        ids = [each.snapshot_id for each in self._old_snapshots(table, keep_ms) if each.snapshot_id in old]
        commit_updates(table, {}, (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),))
        table = self._load()
        remove_files(table, before.without(References.of(table, table.metadata.snapshots)))

    def _old_snapshots(self, table: Table, keep_ms: int) -> Iterator[Snapshot]:
        return old_snapshots(table, self._now_ms - keep_ms, self._settings.keep_snapshots_min)

    def _remove_orphans(self, after_ms: int) -> None:
        """Remove data files of this sink that no snapshot refers to.

        Names are compared, not locations: a location has several spellings, and a name is never used twice.
        """
        table = self._load()
        store = self._files(table).store
        dead = [
            info.path
            for info in store.list()
            if self._own.is_dead(info.path) and self._now_ms - info.modified_ms > after_ms
        ]
        table = self._load()
        needed = {_name(path) for path in References.of(table, table.metadata.snapshots).data}
        store.delete_many([path for path in dead if _name(path) not in needed])


def old_snapshots(table: Table, before_ms: int, kept_min: int) -> Iterator[Snapshot]:
    """Snapshots of the main branch that may go: nothing else refers to them, and they are not the newest."""
    metadata = table.metadata
    others = {
        each.snapshot_id
        for name, ref in metadata.refs.items()
        if name != MAIN_BRANCH
        for each in ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata)
    }
    line = list(ancestors_of(metadata.current_snapshot(), metadata))
    for snapshot in line[kept_min:]:
        if snapshot.timestamp_ms < before_ms and snapshot.snapshot_id not in others:
            yield snapshot


def _name(path: str) -> str:
    return path.rpartition("/")[2]
