"""Create-if-absent and compare-and-swap over a network that may lose answers.

Each write carries a unique id, which is stored with the object. When an answer is lost, the id found
in the object tells whether the write was ours. If that cannot be determined, the outcome is reported
as unknown, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from lakestate.errors import LakestateError, OutcomeUnknownError
from lakestate.storage.remote.errors import ConditionFailedError
from lakestate.storage.retry import Applied, Retrier, TransientFault
from lakestate.storage.store import (
    AlreadyExists,
    Created,
    CreateOutcome,
    Data,
    StoredObject,
    SwapConflict,
    SwapOutcome,
    Swapped,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """The object as it is now, and the id of the conditional write that wrote it, if one did."""

    stored: StoredObject
    write_id: str | None


class ConditionalTarget(Protocol):
    """One attempt each. Both may raise TransientFault; `write` may raise ConditionFailedError."""

    def write(self, data: Data, write_id: str, expected: Version | None) -> Version:
        """Write if the object has the expected version, or, for None, if it does not exist."""
        ...

    def look(self) -> ObservedObject | None:
        """The object as it is now."""
        ...


@dataclass(slots=True)
class ConditionalWrite:
    """One conditional write, from its first attempt to its outcome."""

    target: ConditionalTarget
    object_name: str
    data: Data
    write_id: str
    lost: bool = False
    """An attempt may have been applied although no answer arrived."""

    def create(self, retrier: Retrier) -> CreateOutcome:
        """Write if the object does not exist."""
        return self._run(retrier, self._try_create, self._creation_outcome)

    def swap(self, retrier: Retrier, expected: Version) -> SwapOutcome:
        """Write if the object has the expected version."""
        return self._run(retrier, lambda: self._try_swap(expected), self._swap_outcome)

    def _try_create(self) -> CreateOutcome:
        try:
            return Created(self._send(None))
        except ConditionFailedError:
            seen = self.target.look()
        outcome = self._creation_outcome(seen)
        if outcome is not None:
            return outcome
        if self.lost:
            # Our object may have been created and deleted since; writing again would bring it back.
            raise self._unknown("the object no longer exists")
        raise TransientFault("the object that existed has been deleted", Applied.NO)

    def _creation_outcome(self, seen: ObservedObject | None) -> CreateOutcome | None:
        if seen is None:
            return None
        if seen.write_id == self.write_id:
            return Created(seen.stored.version)
        return AlreadyExists(seen.stored)

    def _try_swap(self, expected: Version) -> SwapOutcome:
        try:
            return Swapped(self._send(expected))
        except ConditionFailedError:
            seen = self.target.look()
        outcome = self._swap_outcome(seen)
        if outcome is not None:
            return outcome
        if seen is not None and seen.stored.version == expected:
            raise TransientFault("the object has the expected version again", Applied.NO)
        if self.lost:
            # Our write may have been applied and then replaced by what we see.
            raise self._unknown("the object was changed by another writer")
        return SwapConflict(None if seen is None else seen.stored)

    def _swap_outcome(self, seen: ObservedObject | None) -> SwapOutcome | None:
        if seen is not None and seen.write_id == self.write_id:
            return Swapped(seen.stored.version)
        return None

    def _send(self, expected: Version | None) -> Version:
        try:
            return self.target.write(self.data, self.write_id, expected)
        except TransientFault as fault:
            self.lost = self.lost or fault.applied is Applied.MAYBE
            raise

    def _run(
        self,
        retrier: Retrier,
        attempt: Callable[[], Outcome],
        outcome_of: Callable[[ObservedObject | None], Outcome | None],
    ) -> Outcome:
        try:
            return retrier.run(attempt, self.object_name)
        except OutcomeUnknownError:
            raise
        except LakestateError as error:
            if not self.lost:
                raise
            reason = error.found or error.summary
        outcome = outcome_of(self._last_look())
        if outcome is None:
            raise self._unknown(reason)
        return outcome

    def _last_look(self) -> ObservedObject | None:
        try:
            return self.target.look()
        except (TransientFault, LakestateError):
            return None

    def _unknown(self, reason: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            "the answer to a conditional write was lost",
            object_name=self.object_name,
            found=reason,
            action="read the object before you do anything else",
        )
