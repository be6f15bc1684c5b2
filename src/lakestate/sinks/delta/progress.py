"""Which epochs of a sink are in a table: the table's own entries of transactions, and what they mean. Pure.

An entry is an application id with a number, in the same commit as the rows. Checkpoints of the log keep
the newest of each id. An epoch leaves two: its number, and a digest of what it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from lakestate.errors import CorruptionError
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.pre_commit import FilePreCommit, PreCommit

_DIGEST_BITS = 63

EntryOf = Callable[[str], int | None]
"""The number of the newest entry of an application id in a table; None if there is none."""


class CommitStatus(Enum):
    """What a table says about an epoch."""

    PENDING = "pending"
    """It is not in the table."""
    DONE = "done"
    """It is the newest epoch in the table."""
    OTHER_CONTENT = "other content"
    """An epoch of this number is in the table, with other content."""
    PAST = "past"
    """A later epoch is in the table."""


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

    @property
    def app_id(self) -> str:
        """The application id whose number is the epoch."""
        return f"lakestate/{self.job_id}/{self.fingerprint}"

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


@dataclass(frozen=True)
class EpochFiles:
    """What one epoch of one sink has to append."""

    job_id: str
    fingerprint: str
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

    @cached_property
    def entry(self) -> EpochEntry:
        """The epoch as the table records it. The names of its files, never used twice, are its content."""
        digest = digest_of(file.path for file in self.files)
        return EpochEntry(self.job_id, self.fingerprint, self.epoch, digest)


def digest_of(names: Iterable[str]) -> int:
    """A number that stands for names."""
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    return number >> (64 - _DIGEST_BITS)
