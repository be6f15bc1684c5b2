"""One table over the epochs of its job: what changed between two, and what one key had in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakestate.errors import CorruptionError, IncompatibleStateError, NotFoundError
from lakestate.inspection.changes.state_changes import EXPIRED, StateChanges
from lakestate.inspection.listing import Listing, time_of_ms
from lakestate.inspection.row_filter import Keys, RowFilter
from lakestate.inspection.state import StateSource
from lakestate.inspection.state_table import StateTable
from lakestate.protocol.values import Epoch
from lakestate.tables.contract import Table

if TYPE_CHECKING:
    from lakestate.inspection.job_state import EpochLike, JobState


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """What a key had from one epoch to another, both included, as far as they can be opened.

    `status` is `present`; `absent` if no earlier epoch had the key either; `deleted` or `expired` after one
    that had it; `not retained` for epochs that are gone; `damaged` for one that cannot be read.
    """

    first: Epoch
    last: Epoch
    status: str
    rows: tuple[dict[str, Any], ...] = ()
    since: datetime | None = None
    """When the first of these epochs ended."""
    problem: str | None = None


class TableHistory:
    """A table over all epochs of its job that can be opened."""

    def __init__(self, job: JobState, operator: str, table: str | Table) -> None:
        self._job = job
        self._operator = operator
        self._table = table

    def __repr__(self) -> str:
        return f"TableHistory({self._job.name!r}, {self._operator!r}, {self.name!r})"

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table if isinstance(self._table, str) else self._table.name

    def at(self, epoch: EpochLike = "newest") -> StateTable:
        """The table in one epoch."""
        return self._job.epoch(epoch).table(self._operator, self._table)

    def changes(self, from_epoch: EpochLike | None, to_epoch: EpochLike = "newest") -> StateChanges:
        """What changed after one epoch, up to the end of another.

        With None, everything in `to_epoch` is new. An epoch before the table was declared is empty. The
        other way round, with the later epoch first, it is what going back would change.
        """
        before = None if from_epoch is None else self._source(from_epoch)
        after = self._source(to_epoch)
        if before is None and after is None:
            self.at(to_epoch)
        return StateChanges(before, after)

    def history(self, key: Keys) -> Listing[KeyVersion]:
        """What a key had in each epoch that can be opened, oldest first. Epochs without a change are folded.

        `key` is one key as in `StateTable.get`. Only the row groups that can hold it are read, and those
        only in epochs whose files for it differ from those of the epoch before.
        """
        return Listing(_fold(self._versions(key)))

    def _versions(self, key: Keys) -> Iterator[KeyVersion]:
        """One version for each epoch that can be opened, and for each gap between them."""
        epochs, known = self._job.open_epochs(), None
        previous: StateSource | None = None
        for before, epoch in pairwise([0, *epochs]):
            if epoch > before + 1:
                yield KeyVersion(Epoch(before + 1), Epoch(epoch - 1), "not retained")
            try:
                source = self._source(epoch)
                known = self._version_beside_retention(Epoch(epoch), source, key, previous, known)
                previous = source or previous
                yield known
            except (CorruptionError, NotFoundError) as problem:
                # What retention has deleted since it was listed is neither damage nor an error.
                if not self._is_open(epoch):
                    yield KeyVersion(Epoch(epoch), Epoch(epoch), "not retained")
                elif isinstance(problem, CorruptionError):
                    yield KeyVersion(Epoch(epoch), Epoch(epoch), "damaged", problem=str(problem))
                else:
                    raise
        if previous is None:
            self.at("newest")

    def _version_beside_retention(
        self,
        epoch: Epoch,
        source: StateSource | None,
        key: Keys,
        previous: StateSource | None,
        known: KeyVersion | None,
    ) -> KeyVersion:
        """What the key has in an epoch, if the earlier one may be deleted while the two are compared."""
        try:
            return self._version(epoch, source, key, previous, known)
        except CorruptionError:
            if previous is None or self._is_open(previous.manifest.epoch):
                raise
            return self._version(epoch, source, key, None, known)

    def _is_open(self, epoch: int) -> bool:
        return epoch in self._job.open_epochs()

    def _version(
        self,
        epoch: Epoch,
        source: StateSource | None,
        key: Keys,
        previous: StateSource | None,
        known: KeyVersion | None,
    ) -> KeyVersion:
        """What the key has in an epoch, given what it had in an earlier one."""
        if source is None:
            return KeyVersion(epoch, epoch, "absent")
        since = time_of_ms(source.manifest.finished_ms)
        table = StateTable(source)
        wanted = table.filter_of_one(key)
        if known is not None and _is_unchanged(previous, source, wanted):
            return replace(known, first=epoch, last=epoch, since=since)
        gone = _gone_status(previous, source, wanted) if known is not None and known.rows else None
        rows = table.read_filtered(wanted).to_pylist()
        status = "present" if rows else gone or (known.status if known is not None else "absent")
        return KeyVersion(epoch, epoch, status, tuple(sorted(rows, key=repr)), since)

    def _source(self, epoch: EpochLike) -> StateSource | None:
        """The table in an epoch, or None if the epoch has no such table."""
        state = self._job.epoch(epoch)
        if not state.has_table(self._operator, self.name):
            return None
        return state.source(self._operator, self._table)


def _is_unchanged(previous: StateSource | None, source: StateSource, wanted: RowFilter) -> bool:
    try:
        return previous is not None and not StateChanges(previous, source).can_have(wanted)
    except IncompatibleStateError:
        return False


def _gone_status(previous: StateSource | None, source: StateSource, wanted: RowFilter) -> str:
    """Whether rows that are not there any more expired or were deleted."""
    try:
        changes = StateChanges(previous, source).read_filtered(wanted)
    except IncompatibleStateError:
        # The columns have changed in between, and nobody has said how.
        return "deleted"
    expired = changes.column(EXPIRED).to_pylist()
    return "expired" if expired and all(expired) else "deleted"


def _fold(versions: Iterator[KeyVersion]) -> Iterator[KeyVersion]:
    """Neighbouring epochs in which the key had the same, as one version."""
    held: KeyVersion | None = None
    for version in versions:
        if held is not None and (version.status, version.rows) == (held.status, held.rows):
            held = replace(held, last=version.last)
            continue
        if held is not None:
            yield held
        held = version
    if held is not None:
        yield held
