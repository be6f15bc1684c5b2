"""Where the time of a job's epochs went, as their drivers measured it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from lakestate.inspection.listing import Listing
from lakestate.observability.time_parts import PARTS
from lakestate.protocol.metadata import Manifest


@dataclass(frozen=True, slots=True)
class PartTime:
    """One part of the epochs: how long it took on average, and its share of the whole."""

    part: str
    owner: str
    """Who spends the time: Spark, Lakestate, or your code."""
    milliseconds: float
    share: float
    """Of all parts together: 0.25 is a quarter."""
    what: str


@dataclass(frozen=True, slots=True)
class EpochProfile:
    """The average of some epochs, part by part, in the order in which an epoch goes through them."""

    epochs: int
    """How many were measured."""
    parts: Listing[PartTime]

    @property
    def milliseconds(self) -> float:
        """All parts together."""
        return sum(part.milliseconds for part in self.parts)

    def __repr__(self) -> str:
        return f"{self._title}\n{self.parts!r}"

    def _repr_html_(self) -> str:
        return f"<p>{self._title}</p>{self.parts._repr_html_()}"

    @property
    def _title(self) -> str:
        return f"{self.milliseconds:,.0f} ms, the average of {self.epochs:,} epochs"


def average_profile(manifests: Iterable[Manifest]) -> EpochProfile:
    """The average of the epochs before these manifests, of those that were measured.

    A part that this version does not know comes last: a newer one has measured it.
    """
    sums_us: dict[str, int] = defaultdict(int)
    measured = [manifest.parent_parts for manifest in manifests if manifest.parent_parts]
    for each in (part for parts in measured for part in parts):
        sums_us[each.part] += each.microseconds
    known = {part.name: (part.owner, part.what) for part in PARTS}
    names = [*(name for name in known if name in sums_us), *sorted(sums_us.keys() - known.keys())]
    total_us = sum(sums_us.values()) or 1
    return EpochProfile(
        len(measured),
        Listing(
            PartTime(
                name,
                known.get(name, ("", ""))[0],
                sums_us[name] / len(measured) / 1000,
                sums_us[name] / total_us,
                known.get(name, ("", ""))[1],
            )
            for name in names
        ),
    )
