"""Which epochs of a sink are in a table: what is recorded there, and what that means for an epoch.

An epoch is recorded twice, in the same commit as its files: in the snapshot's summary, which shows which
snapshot is which epoch, and as table properties, which survive the expiry of snapshots. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakestate.errors import CorruptionError
from lakestate.sinks.table_format.epoch_files import CommitStatus, EpochFiles, digest_of

JOB, SINK, EPOCH, FILES = "lakestate.job-id", "lakestate.sink", "lakestate.epoch", "lakestate.files"

EPOCH_DIGITS_MAX = 10


@dataclass(frozen=True, slots=True)
class IcebergEpoch(EpochFiles):
    """What one epoch of one sink has to commit, and how a table records it."""

    @property
    def digest(self) -> str:
        """Identifies the files by their names, which are never used twice."""
        return digest_of(file.path for file in self.files).hex()

    @property
    def property_name(self) -> str:
        """The table property that holds the last epoch of this sink."""
        return f"lakestate.committed.{self.job_id}.{self.fingerprint}"

    def properties(self) -> dict[str, str]:
        """The table properties that say that this epoch is in."""
        return {self.property_name: str(int(self.epoch)), f"{self.property_name}.files": self.digest}

    def summary(self) -> dict[str, str]:
        """What the snapshot's summary says."""
        return {JOB: self.job_id, SINK: self.fingerprint, EPOCH: str(int(self.epoch)), FILES: self.digest}

    def commit_status(
        self, properties: Mapping[str, str], summaries: Iterable[Mapping[str, str]]
    ) -> CommitStatus:
        """What a table with these properties and snapshots says about the epoch.

        >>> from lakestate.protocol.values import Epoch
        >>> second = IcebergEpoch("job", "0123456789ab", Epoch(2), ())
        >>> third = IcebergEpoch("job", "0123456789ab", Epoch(3), ())
        >>> third.commit_status(second.properties(), [])
        <CommitStatus.PENDING: 'pending'>
        >>> second.commit_status(third.properties(), [second.summary()])
        <CommitStatus.DONE: 'done'>
        """
        known = self._known_epochs(summaries)
        recorded = properties.get(self.property_name)
        last = max(known, default=None) if recorded is None else self._number(recorded)
        if last is None or last < self.epoch:
            return CommitStatus.PENDING
        if last == self.epoch and recorded is not None:
            digest = properties.get(f"{self.property_name}.files", self.digest)
            return CommitStatus.DONE if digest == self.digest else CommitStatus.OTHER_CONTENT
        if self.epoch not in known:
            return CommitStatus.PAST
        return CommitStatus.DONE if self.digest in known[self.epoch] else CommitStatus.OTHER_CONTENT

    def _known_epochs(self, summaries: Iterable[Mapping[str, str]]) -> dict[int, set[str]]:
        known: dict[int, set[str]] = {}
        for summary in summaries:
            if summary.get(SINK) == self.fingerprint and summary.get(JOB) == self.job_id:
                epoch = self._number(summary.get(EPOCH, ""))
                known.setdefault(epoch, set()).add(summary.get(FILES, ""))
        return known

    def _number(self, text: str) -> int:
        if not text.isdecimal() or len(text) > EPOCH_DIGITS_MAX:
            raise CorruptionError(
                "a table does not record which epoch it holds",
                object_name=self.property_name,
                found=repr(text[:40]),
                expected="the number of an epoch",
                action="restore the property, or that of the snapshot's summary",
            )
        return int(text)
