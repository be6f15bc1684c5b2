"""Decides which epochs are kept and which objects may be deleted. Pure.

Two decisions, with a durable act between them: `next_boundary` says how far the boundary may advance.
Once the advanced boundary is stored and the tags are read again, `plan_retention` classifies every
object before anything is deleted. It fails closed: if a tag or the metadata of any retained epoch
cannot be read, nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakestate.errors import InvalidInputError
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.values import Epoch


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How many of the newest epochs can be restored without a tag."""

    keep_epochs: int = 10

    def __post_init__(self) -> None:
        if self.keep_epochs < 1:
            raise InvalidInputError("retention keeps at least one epoch", found=self.keep_epochs)


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """What was observed after the boundary was stored.

    `references` gives, for each retained epoch, every object that restoring it needs, or the damage
    that prevents us from knowing. `unread_tags` are tags that could not be read, so what they keep is
    unknown. `spared` are objects that nothing refers to yet but an epoch in flight may.
    """

    boundary: Epoch
    published: Collection[Epoch]
    tagged: Collection[Epoch]
    references: Mapping[Epoch, Collection[str] | Damaged]
    objects: Collection[str]
    unread_tags: tuple[Damaged, ...] = ()
    spared: Collection[str] = frozenset()
    forked: Collection[str] = frozenset()
    """What forks need of epochs that have no record any more."""

    @property
    def retained(self) -> frozenset[Epoch]:
        """The epochs that must remain restorable."""
        return frozenset(e for e in self.published if e >= self.boundary or e in self.tagged)


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What to delete, in order: first the records that make epochs accessible, then what they needed."""

    boundary: Epoch
    delete_first: tuple[str, ...]
    delete_then: tuple[str, ...]
    kept: tuple[str, ...]
    foreign: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetentionRefused:
    """A required object cannot be read, or no epoch would remain. Nothing is deleted."""

    damages: tuple[Damaged, ...]

    def __str__(self) -> str:
        return "; ".join(
            reason if damage.object_name in (reason := damage.reason) else f"{damage.object_name}: {reason}"
            for damage in self.damages
        )


def next_boundary(
    current: Epoch | None,
    published: Sequence[Epoch],
    policy: RetentionPolicy,
    in_flight: Epoch | None = None,
) -> Epoch | None:
    """The boundary to advance to, or None if it stays.

    It never passes `in_flight`, the oldest epoch with files that no manifest refers to yet: otherwise a
    merge that takes many epochs would be collected just before it is swapped in.

    >>> next_boundary(None, [Epoch(n) for n in range(1, 6)], RetentionPolicy(keep_epochs=2))
    Epoch(4)
    """
    newest_first = sorted(published, reverse=True)
    if len(newest_first) < policy.keep_epochs:
        return None
    wanted = newest_first[policy.keep_epochs - 1]
    if in_flight is not None and in_flight < wanted:
        # Back to a published epoch, because the boundary is always one.
        wanted = max((epoch for epoch in newest_first if epoch <= in_flight), default=newest_first[-1])
    return wanted if current is None or wanted > current else None


def plan_retention(facts: RetentionFacts) -> RetentionPlan | RetentionRefused:
    """Classify every object, then decide what to delete.

    An object is deleted only if its epoch is before the boundary and no retained epoch needs it. An
    object of an epoch in flight, or of an attempt that may still be swapped in, is never touched, and
    neither is anything whose name is not ours.
    """
    damages = [
        known
        for epoch in sorted(facts.retained)
        if isinstance(known := facts.references.get(epoch, _unread(epoch)), Damaged)
    ]
    if damages or facts.unread_tags:
        return RetentionRefused((*facts.unread_tags, *damages))
    if not any(epoch >= facts.boundary for epoch in facts.published):
        return RetentionRefused((Damaged(f"epoch {facts.boundary}", "no published epoch would remain"),))
    needed = needed_objects(facts).union(facts.spared)
    first: list[str] = []
    then: list[str] = []
    kept: list[str] = []
    foreign: list[str] = []
    for path in sorted(facts.objects):
        name = parse_object_name(path)
        if name.kind is ObjectKind.FOREIGN:
            foreign.append(path)
        elif name.origin is not None:
            # Only its own job deletes an object, whatever refers to it.
            kept.append(path)
        elif name.epoch is None or name.epoch >= facts.boundary or path in needed:
            kept.append(path)
        elif name.kind is ObjectKind.EPOCH_RECORD:
            (kept if name.epoch in facts.tagged else first).append(path)
        else:
            then.append(path)
    return RetentionPlan(facts.boundary, tuple(first), tuple(then), tuple(kept), tuple(foreign))


def needed_objects(facts: RetentionFacts) -> frozenset[str]:
    """What retained epochs and forks need."""
    known = (facts.references[epoch] for epoch in facts.retained)
    found = frozenset(path for paths in known if not isinstance(paths, Damaged) for path in paths)
    return found.union(facts.forked)


def _unread(epoch: Epoch) -> Damaged:
    return Damaged(f"epoch {epoch}", "its references were not read")
