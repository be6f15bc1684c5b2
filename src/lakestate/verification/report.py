"""The result of a verification: findings, orphans, dangling uploads, and which epochs can be restored.

Frozen values only. `str(report)` is for people; everything in it is also a field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from lakestate.protocol.values import Epoch

LINES_MAX = 20
"""`str` shows this many items of each kind; the fields hold all."""


class Problem(Enum):
    """What is wrong with an object."""

    MISSING = "is missing"
    SIZE = "has the wrong size"
    CHECKSUM = "does not match its checksum"
    UNREADABLE = "cannot be decoded"
    MISPLACED = "belongs in another place"
    CONTRADICTION = "contradicts what refers to it"
    OUTDATED = "is older than other objects show"
    NEWER_FORMAT = "has a format that this version does not know"


@dataclass(frozen=True, slots=True)
class Finding:
    """One object that is not what it should be.

    >>> print(Finding("s3://bucket/job/manifest.pb", "manifest", Problem.SIZE, epochs=(Epoch(7),)))
    manifest has the wrong size: s3://bucket/job/manifest.pb; epoch 7 cannot be restored
    """

    object_name: str
    kind: str
    problem: Problem
    found: str = ""
    expected: str = ""
    epochs: tuple[Epoch, ...] = ()
    """The retained epochs that it makes impossible to restore."""
    consequence: str = ""
    """What else follows from it."""

    def __str__(self) -> str:
        parts = [f"{self.kind} {self.problem.value}: {self.object_name}"]
        if self.found:
            parts.append(f"found {self.found}")
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.epochs:
            parts.append(f"{_epochs(self.epochs)} cannot be restored")
        if self.consequence:
            parts.append(self.consequence)
        return "; ".join(parts)


class OrphanDeletion(Enum):
    """When retention deletes an object that nothing refers to."""

    NEXT_RETENTION = "the next retention deletes it"
    LATER = "retention deletes it once its boundary has passed the epoch"
    NEVER = "it does not belong to Lakestate and is never deleted"
    UNKNOWN = "an epoch that cannot be read may need it; retention deletes nothing"


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object below the job's root that no retained epoch refers to."""

    object_name: str
    kind: str
    size_bytes: int
    deletion: OrphanDeletion
    epoch: Epoch | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.object_name} ({self.size_bytes:,} bytes): {self.deletion.value}"


class DanglingStatus(Enum):
    """Who left an unfinished upload or hidden file, and what happens to it."""

    DEAD = "left by a failed attempt; the next clean-up removes it"
    IN_FLIGHT = "started after the newest published epoch; it may be in use"
    NOT_USED = "state is never uploaded in parts; abort the upload by hand"


@dataclass(frozen=True, slots=True)
class DanglingOutput:
    """An upload, or a hidden local file, that the newest epoch does not refer to."""

    object_name: str
    token: str
    status: DanglingStatus
    sink_id: str | None = None
    started_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.object_name} ({self.token}): {self.status.value}"


@dataclass(frozen=True, slots=True)
class EpochVerdict:
    """Whether a retained epoch can be restored."""

    epoch: Epoch
    reasons: tuple[str, ...] = ()
    """Why it cannot be restored."""
    tags: tuple[str, ...] = ()
    is_committed: bool = True
    """Whether it has a commit marker. Without one, the next start repeats the commit of the newest epoch."""

    @property
    def is_restorable(self) -> bool:
        """True if everything that restoring needs exists and is intact."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What was read of a job, and what was found.

    >>> print(VerificationReport("memory://docs/job", epochs=(EpochVerdict(Epoch(3)),)))
    memory://docs/job: no damage found in 0 objects (0 bytes)
    restorable: epoch 3
    """

    url: str
    findings: tuple[Finding, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    dangling: tuple[DanglingOutput, ...] = ()
    epochs: tuple[EpochVerdict, ...] = ()
    """The retained epochs, oldest first."""
    checked: Mapping[str, int] = field(default_factory=dict)
    """How many objects of each kind were read."""
    bytes_read: int = 0

    @property
    def is_clean(self) -> bool:
        """True if nothing is damaged. Orphans and dangling uploads are not damage."""
        return not self.findings

    @property
    def restorable(self) -> tuple[Epoch, ...]:
        """The epochs that can be restored."""
        return tuple(verdict.epoch for verdict in self.epochs if verdict.is_restorable)

    @property
    def not_restorable(self) -> tuple[EpochVerdict, ...]:
        """The retained epochs that cannot be restored, with the reasons."""
        return tuple(verdict for verdict in self.epochs if not verdict.is_restorable)

    def about(self, path: str) -> tuple[Finding, ...]:
        """The findings about an object, which you name by the end of its path."""
        return tuple(finding for finding in self.findings if finding.object_name.endswith(path))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        count = sum(self.checked.values())
        detail = "no damage" if self.is_clean else f"{len(self.findings)} damaged objects"
        yield f"{self.url}: {detail} found in {count:,} objects ({self.bytes_read:,} bytes)"
        if self.checked:
            yield "read: " + ", ".join(f"{times:,} × {kind}" for kind, times in sorted(self.checked.items()))
        yield f"restorable: {_epochs(self.restorable)}"
        for verdict in self.not_restorable:
            yield f"not restorable: {_epochs((verdict.epoch,))}: {verdict.reasons[0]}" + _more(
                len(verdict.reasons) - 1
            )
        yield from _section("findings", self.findings)
        if self.orphans:
            kinds = Counter((orphan.kind, orphan.deletion) for orphan in self.orphans)
            sizes = Counter[tuple[str, OrphanDeletion]]()
            for orphan in self.orphans:
                sizes[orphan.kind, orphan.deletion] += orphan.size_bytes
            yield "orphans:"
            for (kind, deletion), times in sorted(kinds.items(), key=str):
                yield f"  {times:,} × {kind} ({sizes[kind, deletion]:,} bytes): {deletion.value}"
        yield from _section("dangling uploads", self.dangling)


def _section(title: str, items: tuple[object, ...]) -> Iterator[str]:
    if items:
        yield f"{title}:"
        yield from (f"  {item}" for item in items[:LINES_MAX])
        if len(items) > LINES_MAX:
            yield f"  … and {len(items) - LINES_MAX:,} more"


def _more(count: int) -> str:
    return f" (and {count:,} more reasons)" if count else ""


def _epochs(epochs: tuple[Epoch, ...]) -> str:
    """Epochs as people write them, with consecutive ones as a range."""
    if not epochs:
        return "no epoch"
    runs: list[list[int]] = []
    for epoch in sorted(epochs):
        if runs and epoch == runs[-1][-1] + 1:
            runs[-1].append(epoch)
        else:
            runs.append([epoch])
    shown = ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"epochs {shown}" if len(epochs) > 1 else f"epoch {shown}"
