"""What one epoch of a sink brings into a table, and what the table can say about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

from lakestate.errors import CorruptionError, NotFoundError
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.pre_commit import FilePreCommit, PreCommit
from lakestate.storage.store import ObjectStore


class CommitStatus(Enum):
    """What a table says about an epoch."""

    PENDING = "pending"
    """It is not in the table."""
    DONE = "done"
    """It is in the table, or was."""
    OTHER_CONTENT = "other content"
    """An epoch of this number is in the table, with other content."""
    PAST = "past"
    """A later epoch is in the table, which no longer knows about this one."""

    def settle(self, was_held: Callable[[], bool]) -> CommitStatus:
        """The status, with another way to find out about a past epoch.

        >>> CommitStatus.PAST.settle(lambda: True)
        <CommitStatus.DONE: 'done'>
        """
        if self is not CommitStatus.PAST:
            return self
        return CommitStatus.DONE if was_held() else CommitStatus.OTHER_CONTENT


@dataclass(frozen=True, slots=True)
class EpochFiles:
    """What one epoch of one sink has to commit."""

    job_id: str
    fingerprint: str
    """Identifies the job, the sink and the job's state; see `sink_fingerprint`."""
    epoch: Epoch
    files: tuple[FilePreCommit, ...]

    @classmethod
    def of(cls, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> Self:
        """What the pre-commits of all subtasks say."""
        decoded = [PreCommit.decode(data) for data in pre_commits]
        fingerprints = {each.fingerprint for each in decoded}
        if len(fingerprints) > 1:
            raise CorruptionError(
                "the pre-commits of one sink name several sinks", found=", ".join(sorted(fingerprints))
            )
        files = sorted((file for each in decoded for file in each.finished), key=lambda file: file.path)
        return cls(job_id, next(iter(fingerprints), ""), epoch, tuple(files))

    def any_in_place(self, store: ObjectStore) -> bool:
        """Whether any file of the epoch is complete: files are completed only by a commit."""
        for file in self.files:
            try:
                store.head(file.path)
            except NotFoundError:
                continue
            return True
        return False


def digest_of(names: Iterable[str]) -> bytes:
    """Eight bytes that stand for names, which are never used twice."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).digest()
