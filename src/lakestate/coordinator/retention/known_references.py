"""A memory of what the retained epochs of a job refer to: published metadata never changes.

Without it every retention would read the metadata of all retained epochs again, though only the newest
is new. For each object we remember the newest epoch that needs it: memory grows with the number of
objects referred to, not with the number of objects of every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from lakestate.protocol.resolve import Damaged
from lakestate.protocol.values import Epoch

PATHS_MAX = 1_000_000
"""About 300 MB. Beyond that, everything is forgotten and read again."""

ReadReferences = Callable[[Epoch], frozenset[str] | Damaged]


class KnownReferences:
    """The references of one job's epochs, for one driver. Not shared between threads."""

    def __init__(self, paths_max: int = PATHS_MAX) -> None:
        self._paths_max = paths_max
        self._read: set[Epoch] = set()
        self._newest: dict[str, Epoch] = {}
        self._tagged: dict[Epoch, frozenset[str]] = {}
        """What epochs before the boundary need, which only tags keep."""

    def of(
        self, epochs: Iterable[Epoch], boundary: Epoch, read: ReadReferences
    ) -> Mapping[Epoch, Collection[str] | Damaged]:
        """What must be kept for each of these epochs, which include all from the boundary on.

        An object that several epochs from the boundary on need is named for the newest of them only.
        Damage is never remembered, so the next call looks for it again. The newest epoch is always
        read: the job continues from it, so what is remembered of it is not enough.
        """
        epochs = sorted(epochs)
        self.forget_before(boundary)
        if not self._read.issubset(epochs):
            # A published epoch is gone: objects remembered for it alone may be needed by older ones.
            self._read, self._newest = set(), {}
        found: dict[Epoch, set[str] | frozenset[str] | Damaged] = {}
        before = {epoch: self._tagged.get(epoch) for epoch in epochs if epoch < boundary}
        self._tagged = {}
        for epoch in epochs:
            if epoch in self._read and epoch != epochs[-1]:
                found[epoch] = set()
                continue
            references = before.get(epoch) or read(epoch)
            found[epoch] = references
            if isinstance(references, Damaged):
                continue
            if epoch < boundary:
                self._tagged[epoch] = references
            else:
                found[epoch] = set()
                self._remember(epoch, references)
        for path, epoch in self._newest.items():
            named = found[epoch]
            # Only the newest can have been damaged since, and then the plan refuses.
            if isinstance(named, set):
                named.add(path)
        if len(self._newest) + sum(map(len, self._tagged.values())) > self._paths_max:
            self._read, self._newest, self._tagged = set(), {}, {}
        return found

    def learn(self, epoch: Epoch, references: frozenset[str]) -> None:
        """Remember what an epoch needs that was just published: then it need not be read."""
        self._remember(epoch, references)

    def knows(self, epochs: Iterable[Epoch]) -> bool:
        """Whether what each of these epochs needs is remembered."""
        return self._read.issuperset(epochs)

    def forget_before(self, boundary: Epoch) -> frozenset[str]:
        """Forget the epochs before the boundary. Returns the objects that no later known epoch needs."""
        if all(epoch >= boundary for epoch in self._read):
            return frozenset()
        self._read = {epoch for epoch in self._read if epoch >= boundary}
        unneeded = frozenset(path for path, epoch in self._newest.items() if epoch < boundary)
        self._newest = {path: epoch for path, epoch in self._newest.items() if epoch >= boundary}
        return unneeded

    def _remember(self, epoch: Epoch, references: frozenset[str]) -> None:
        # Epochs are not always read in order: a damaged one is read after newer ones, once it is
        # repaired. It must not replace them here: their objects would go when the boundary passes it.
        for path in references:
            if self._newest.get(path, epoch) <= epoch:
                self._newest[path] = epoch
        self._read.add(epoch)
