"""Which attempt made a hidden file, as its name tells, and which hidden files nothing can refer to. Pure.

State refers to what the state before it refers to, and to what the attempts of its own epoch made. So what
was made in an epoch or before, and what that epoch does not name, is never named again. An attempt of the
next epoch may still be at work, and what it made is kept, until a driver claims the job: from then on only
manifests that were written before the claim can make it count.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from lakestate.protocol.values import Epoch, Generation
from lakestate.sinks.files.names import epoch_begun

_MADE = re.compile(r"(?P<file>[^~]*)~(?P<epoch>[0-9]{10})-(?P<generation>[0-9]{1,19})-[^~]*")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one subtask in one epoch.

    >>> Attempt(Epoch(7), Generation(3), "a1").hidden_name("_open-f00")
    '_open-f00~0000000007-3-a1'
    """

    epoch: Epoch
    generation: Generation
    unique: str

    def hidden_name(self, file: str) -> str:
        """The name of a file that this attempt makes. No other attempt ever makes one of this name."""
        return f"{file}~{self.epoch:010d}-{self.generation:d}-{self.unique}"


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Where a hidden file comes from. All of them that are of one output file have the same `file`."""

    file: str
    begun: int
    """The epoch in which the output file was begun."""
    epoch: int
    """The epoch of the attempt that made this hidden file."""
    generation: int

    @classmethod
    def of(cls, name: str, fingerprint: str) -> MadeBy | None:
        """The origin of a hidden file, or None if it is not of this sink.

        Names without an attempt are from before attempts were named. Whoever asks now has claimed the job
        since, so any generation is higher.
        """
        begun = epoch_begun(name, fingerprint)
        if begun is None:
            return None
        found = _MADE.fullmatch(name)
        if found is None:
            return cls(name, int(begun), int(begun), 0)
        return cls(found["file"], int(begun), int(found["epoch"]), int(found["generation"]))

    @property
    def is_copy(self) -> bool:
        """True if it was made from what earlier epochs had written."""
        return self.epoch > self.begun


def is_dead_after_epoch(name: str, fingerprint: str, epoch: Epoch, named: Container[str]) -> bool:
    """True if no epoch from this one on can refer to the file. `named` is what this one refers to.

    >>> copy = Attempt(Epoch(7), Generation(1), "a1").hidden_name("_open-0123456789ab-0000000001-00000-f0")
    >>> [is_dead_after_epoch(copy, "0123456789ab", Epoch(epoch), ()) for epoch in (6, 7, 8)]
    [False, True, True]
    """
    made = MadeBy.of(name, fingerprint)
    return made is not None and made.epoch <= epoch and name not in named


def is_dead_after_claim(name: str, fingerprint: str, generation: Generation, named: Container[str]) -> bool:
    """True if an attempt of an earlier driver made the file, and nothing that may be published names it.

    `named` is what the newest epoch refers to, and every manifest of the next one.

    >>> copy = Attempt(Epoch(7), Generation(1), "a1").hidden_name("_open-0123456789ab-0000000001-00000-f0")
    >>> [is_dead_after_claim(copy, "0123456789ab", Generation(claimed), ()) for claimed in (1, 2)]
    [False, True]
    """
    made = MadeBy.of(name, fingerprint)
    return made is not None and made.generation < generation and name not in named
