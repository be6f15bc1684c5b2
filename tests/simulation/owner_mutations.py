"""Ways to break what keeps jobs apart that share an output."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.mutations import Mutation, Patch

from lakestate.sinks.files import owner_marks


def overlook_other_owners(patch: Patch) -> None:
    patch.setattr(owner_marks, "other_owners", lambda owner, marks: [])


def leave_no_mark(patch: Patch) -> None:
    """A job that leaves its mark in the wrong place: a copy does not find it."""
    real = owner_marks._StoreMarks.leave

    def leave(marks: owner_marks._StoreMarks, mark: str) -> None:
        real(marks, f"lost/{mark}")

    patch.setattr(owner_marks._StoreMarks, "leave", leave)


SHARED_OUTPUT: Sequence[Mutation] = (
    Mutation("overlook the marks of other owners", overlook_other_owners, needs_neighbour=True),
    Mutation("leave a mark where nobody looks", leave_no_mark, needs_neighbour=True),
)
