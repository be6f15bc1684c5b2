"""Which epochs of a sink are in a table: the table's own entries of transactions, and what they mean. Pure.

An entry is an application id with a number, in the same commit as the rows. Checkpoints of the log keep
the newest of each id. An epoch leaves two: its number, and a digest of what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from lakestate.protocol.values import Epoch
from lakestate.sinks.table_format.epoch_files import CommitStatus, EpochFiles, digest_of

_DIGEST_BITS = 63

EntryOf = Callable[[str], int | None]
"""The number of the newest entry of an application id in a table; None if there is none."""


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """An epoch of one sink as a table records it.

    >>> second, third = (EpochEntry("job", "0123456789ab", Epoch(number), 7) for number in (2, 3))
    >>> third.commit_status({second.app_id: 2, second.content_id: 7}.get)
    <CommitStatus.PENDING: 'pending'>
    >>> second.commit_status({second.app_id: 2, second.content_id: 7}.get)
    <CommitStatus.DONE: 'done'>
    """

    job_id: str
    fingerprint: str
    """Identifies the job, the sink and the job's state; see `sink_fingerprint`."""
    epoch: Epoch
    digest: int
    """Of what the epoch holds."""
    part: str = ""
    """What a second commit of the epoch does; empty for the first, which brings its rows."""

    @classmethod
    def of(cls, job_id: str, fingerprint: str, epoch: Epoch, content: Iterable[str]) -> EpochEntry:
        """An epoch that is known by names of its content, which are never used twice."""
        number = int.from_bytes(digest_of(content), "big")
        return cls(job_id, fingerprint, epoch, number >> (64 - _DIGEST_BITS))

    @classmethod
    def of_files(cls, batch: EpochFiles) -> EpochEntry:
        """An epoch that is known by its files."""
        return cls.of(batch.job_id, batch.fingerprint, batch.epoch, (file.path for file in batch.files))

    def of_replacement(self) -> EpochEntry:
        """The entry of the commit that puts large files in the place of small ones, after all are visible."""
        return replace(self, part="replaced")

    @property
    def app_id(self) -> str:
        """The application id whose number is the epoch."""
        part = f"/{self.part}" if self.part else ""
        return f"lakestate/{self.job_id}/{self.fingerprint}{part}"

    @property
    def content_id(self) -> str:
        """The application id whose number is the digest."""
        return f"{self.app_id}/content"

    def entries(self) -> dict[str, int]:
        """What the commit of the epoch records."""
        return {self.app_id: int(self.epoch), self.content_id: self.digest}

    def commit_status(self, entry_of: EntryOf) -> CommitStatus:
        """What a table with these entries says about the epoch."""
        last = entry_of(self.app_id)
        if last is None or last < self.epoch:
            return CommitStatus.PENDING
        if last > self.epoch:
            return CommitStatus.PAST
        return CommitStatus.DONE if entry_of(self.content_id) == self.digest else CommitStatus.OTHER_CONTENT
