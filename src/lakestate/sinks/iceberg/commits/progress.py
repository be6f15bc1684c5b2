"""Which epochs of a sink are in a table: what is recorded there, and what that means for an epoch.

An epoch is recorded twice, in the same commit as its files: in the snapshot's summary, which shows which
snapshot is which epoch, and as table properties, which survive the expiry of snapshots. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lakestate.errors import CorruptionError
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.pre_commit import FilePreCommit, PreCommit

JOB, SINK, EPOCH, FILES = "lakestate.job-id", "lakestate.sink", "lakestate.epoch", "lakestate.files"


EPOCH_DIGITS_MAX = 10


class CommitStatus(Enum):
    """What a table says about an epoch."""

    PENDING = "pending"
    """It is not in the table."""
    DONE = "done"
    """Its files are in the table, or were."""
    OTHER_FILES = "other files"
    """An epoch of this number is in the table, with other files."""
    LONG_PAST = "long past"
    """Later epochs are in the table, and the snapshot of this one is gone."""


@dataclass(frozen=True, slots=True)
class EpochFiles:
    """What one epoch of one sink has to commit."""

    job_id: str
    fingerprint: str
    """Identifies the job and the sink; see `sink_fingerprint`."""
    epoch: Epoch
    files: tuple[FilePreCommit, ...]

    @classmethod
    def of(cls, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> EpochFiles:
        """What the pre-commits of all subtasks say."""
        decoded = [PreCommit.decode(data) for data in pre_commits]
        fingerprints = {each.fingerprint for each in decoded}
        if len(fingerprints) > 1:
            raise CorruptionError(
                "the pre-commits of one sink name several sinks", found=", ".join(sorted(fingerprints))
            )
        files = sorted((file for each in decoded for file in each.finished), key=lambda file: file.path)
        return cls(job_id, next(iter(fingerprints), ""), epoch, tuple(files))

    @property
    def digest(self) -> str:
        """Identifies the files by their names, which are never used twice."""
        names = "\n".join(file.path for file in self.files)
        return hashlib.blake2b(names.encode(), digest_size=8).hexdigest()

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

        >>> second = EpochFiles("job", "0123456789ab", Epoch(2), ())
        >>> third = EpochFiles("job", "0123456789ab", Epoch(3), ())
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
            return CommitStatus.DONE if digest == self.digest else CommitStatus.OTHER_FILES
        if self.epoch not in known:
            return CommitStatus.LONG_PAST
        return CommitStatus.DONE if self.digest in known[self.epoch] else CommitStatus.OTHER_FILES

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
