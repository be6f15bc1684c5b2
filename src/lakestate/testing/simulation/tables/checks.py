"""`TableChecks`: every version of a table against what was published, read from the outside.

What is expected is computed from the manifests and from the bytes of finished files, from the oracle, and
from what other writers did: not from what the sink thinks of its table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.sinks.files.pre_commit import FilePreCommit, PreCommit
from lakestate.testing.simulation.checks.read_back import counter_difference
from lakestate.testing.simulation.cluster.world import JOB_ID, TABLE, World
from lakestate.testing.simulation.promises import Promise
from lakestate.testing.simulation.seen import Seen
from lakestate.testing.simulation.tables.target import KEY, Rows, SimulatedTable, newest_by_key

if TYPE_CHECKING:
    from lakestate.testing.simulation.stores.store import SimulatedStore


class TableChecks:
    """The observer of one table and of its data files."""

    def __init__(self, world: World, table: SimulatedTable) -> None:
        self._world = world
        self._table = table
        self._files: dict[str, Rows] = {}
        """The rows of each file of the job, from the moment at which it was complete."""
        self._finished: dict[Epoch, tuple[FilePreCommit, ...]] = {}
        """By epoch, also those that retention has collected: the files that bring new rows."""
        self._epochs_with_rows: list[Epoch] = []
        """The epochs that must be recorded in the table, each once it is committed."""
        self._state_id: str | None = None
        self._followed: Counter[str] = Counter()
        """The files that somebody has read who follows the table."""
        self._recorded = 0
        self._others: Counter[Any] = Counter()
        """Rows of other writers."""
        self._deleted: Counter[Any] = Counter()
        """Rows of the job that other writers deleted."""
        self._by_key: dict[str, dict[str, Any]] = {}
        """What a table with a key holds."""
        table.store.observer = self
        table.on_commit = self.on_commit

    def on_write(self, store: SimulatedStore, path: str, data: bytes, before: bytes | None) -> None:
        """A file is complete: readers do not see it before the table names it."""
        if path.startswith("_"):
            return
        if before is not None and before != data:
            self._world.fail(Promise.OUTPUT_IMMUTABLE, path)
        self._files[path] = pq.read_table(pa.BufferReader(data)).to_pylist()
        self._table.copy_file(path, data)

    def on_delete(self, store: SimulatedStore, path: str) -> None:
        """A file is removed."""
        if path in self._table.data_files():
            self._world.fail(Promise.OUTPUT_NOT_DELETED, path)

    def on_publish(self, manifest: Manifest) -> None:
        """An epoch is published: remember what its commit must bring into the table."""
        self._state_id = manifest.state_id
        found = [each for each in manifest.sinks if each.sink_id == TABLE]
        parts = [part for each in found for part in decode_pre_commits(each.data, "manifest")]
        if self._table.is_keyed:
            self._epochs_with_rows += [manifest.epoch] if parts else []
            return
        files = [file for part in parts for file in PreCommit.decode(part).finished]
        self._finished[manifest.epoch] = tuple(file for file in files if not file.replaces)
        self._epochs_with_rows += [manifest.epoch] if files else []

    def on_marker(self, epoch: Epoch) -> None:
        """An epoch is marked as committed: the table records it, or a later one."""
        wanted = max((each for each in self._epochs_with_rows if each <= epoch), default=None)
        if wanted is not None and self._recorded < wanted:
            self._world.fail(Promise.MARKED_IS_COMMITTED, f"epoch {wanted}: the table has {self._recorded}")

    def on_commit(self) -> None:
        """The job has changed the table."""
        world = self._world
        world.counts["table commits"] += 1
        world.monitor.count_awaited_write(TABLE)
        recorded = self._recorded_epoch()
        if self._seen_by(recorded) is None or recorded < self._recorded:
            found = f"the table records epoch {recorded} after {self._recorded}"
            world.fail(Promise.TABLE_RECORDS_EPOCHS, found)
        if self._table.is_keyed:
            self._merge_epochs(range(self._recorded + 1, recorded + 1))
        else:
            # A delivery reads its rows after the fence, so that only the table can tell a late one.
            world.monitor.check_fence("commit", f"epoch {recorded} to the table")
            self._follow(recorded)
        self._recorded = recorded
        self.check()

    def on_append(self, rows: Rows) -> None:
        """Another writer has appended rows."""
        self._others.update(self._world.job.comparable(rows))
        self._by_key |= newest_by_key(rows)
        self.check()

    def on_delete_rows(self, rows: Rows) -> None:
        """Another writer has deleted rows."""
        gone = Counter(self._world.job.comparable(rows))
        foreign = gone & self._others
        self._others -= foreign
        self._deleted += gone - foreign
        for row in rows:
            self._by_key.pop(str(row[KEY]), None)
        self.check()

    def check(self) -> None:
        """Read the table, and compare every row with what must be there by the epoch that it records."""
        world = self._world
        try:
            rows = self._table.rows()
        except Exception as error:  # noqa: BLE001 - whatever a library raises, readers cannot read
            world.fail(Promise.TABLE_READABLE, f"{type(error).__name__}: {error}", error)
        found = Counter(world.job.comparable(rows))
        difference = counter_difference(found, self._expected())
        if difference:
            world.fail(Promise.TABLE_EXACT, f"epoch {self._recorded}: {difference}")
        if self._table.is_keyed or self._has_gone_back:
            return
        surplus = found - self._others + self._deleted - self._oracle(self._recorded)
        if surplus:
            row, times = next(iter(surplus.items()))
            world.fail(Promise.NO_SURPLUS_OUTPUT, f"{dict(row)} is in the table, {times} times too often")

    def check_paused(self, epoch: Epoch) -> None:
        """Check, after a driver has finished its files in an epoch, that nothing up to it is hidden."""
        if self._table.is_keyed:
            return
        found = Counter(self._world.job.comparable(self._table.rows()))
        hidden = self._oracle(epoch) - found - self._deleted
        if hidden:
            self._world.fail(Promise.PAUSE_SHOWS_ALL, f"the table: {dict(next(iter(hidden)))}")

    def check_final(self, state: Mapping[str, Any]) -> None:
        """Check that the table has every row of the job."""
        world, newest = self._world, self._world.monitor.newest
        if newest is None:
            return
        self.on_marker(newest.manifest.epoch)
        self.check()
        self.check_paused(newest.manifest.epoch)
        if not self._table.is_keyed and not self._deleted and not self._has_gone_back:
            own = [row for row in self._table.rows() if row["id"] < OTHERS_FROM]
            wrong = world.job.check_consistency(state, own)
            if wrong:
                world.fail(Promise.OUTPUT_MATCHES_STATE, f"the table: {wrong}")

    @property
    def _has_gone_back(self) -> bool:
        """Whether rows may be in the table again: those that were visible when the job went back."""
        return bool(self._world.counts["went back"])

    def _recorded_epoch(self) -> int:
        fingerprint = sink_fingerprint(JOB_ID, TABLE, self._state_id or "")
        return self._table.recorded_epoch(fingerprint) or 0

    def _merge_epochs(self, epochs: range) -> None:
        """Let the rows of epochs replace those of their keys."""
        job = self._world.job
        for number in epochs:
            seen = self._seen_by(number)
            if seen is not None:
                own = len(seen.epochs[-1].rows)
                rows = list(job.output(seen) or ())
                self._by_key |= newest_by_key([dict(row) for row in rows[len(rows) - own :]])

    def _follow(self, recorded: int) -> None:
        """Read on, as somebody who reads only what is appended, and compare with what epochs finished."""
        self._followed.update(self._table.appended_files())
        finished = (files for epoch, files in self._finished.items() if epoch <= recorded)
        expected = Counter(file.path for files in finished for file in files)
        difference = counter_difference(self._followed, expected)
        if difference:
            self._world.fail(Promise.TABLE_FOLLOWED, f"epoch {recorded}: {difference}")

    def _expected(self) -> Counter[Any]:
        job = self._world.job
        if self._table.is_keyed:
            return Counter(job.comparable([*self._by_key.values()]))
        expected = Counter(self._others)
        for epoch, files in self._finished.items():
            for file in files if epoch <= self._recorded else ():
                expected.update(job.comparable(self._files.get(file.path, [])))
        return expected - self._deleted

    def _seen_by(self, epoch: int) -> Seen | None:
        return self._world.monitor.seen_by_epoch(Epoch(epoch)) if epoch else None

    def _oracle(self, epoch: int) -> Counter[Any]:
        seen = self._seen_by(epoch)
        rows = () if seen is None else self._world.job.output(seen) or ()
        return Counter(self._world.job.comparable(rows))


OTHERS_FROM = 1_000_000
"""The ids of rows of other writers."""
