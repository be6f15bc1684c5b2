"""Typed values become the declared type through every version in between."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pytest

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.tables.migration.migrations import MigratableState, chain_of, migrate_value, version_of


class Named(msgspec.Struct, MigratableState):
    VERSION: ClassVar[int] = 2
    PREVIOUS: ClassVar[Any] = int
    count: int
    name: str = "none"

    @classmethod
    def migrate(cls, previous: int) -> Named:
        return cls(previous)


@dataclass(slots=True)
class Tagged(MigratableState):
    VERSION = 3
    PREVIOUS = Named
    count: int
    tags: list[str]

    @classmethod
    def migrate(cls, previous: Named) -> Tagged:
        return cls(previous.count, [previous.name])


@dataclass(frozen=True)
class Inverse(MigratableState):
    VERSION = 4
    PREVIOUS = Tagged
    share: float

    @classmethod
    def migrate(cls, previous: Tagged) -> Inverse:
        return cls(1 / previous.count)


def migrated(value: object, version: int, value_type: object = Inverse) -> Any:
    return migrate_value(value, version, value_type, table="shares", key=("ada", 1))


@pytest.mark.parametrize(
    ("value", "version"),
    [(4, 1), (Named(4), 2), (Tagged(4, []), 3), (Inverse(0.25), 4)],
    ids=["1 to 4", "2 to 4", "3 to 4", "4"],
)
def test_a_value_of_any_version_becomes_the_declared_type(value: object, version: int) -> None:
    assert migrated(value, version) == Inverse(0.25)


def test_a_value_of_the_current_version_is_the_same_object() -> None:
    value = Inverse(1.0)
    assert migrated(value, 4) is value


def test_a_chain_lists_the_type_of_each_version() -> None:
    assert chain_of(Inverse) == {4: Inverse, 3: Tagged, 2: Named, 1: int}
    assert chain_of(dict[str, int]) == {1: dict[str, int]}
    assert (version_of(Inverse), version_of(Named), version_of(dict[str, int])) == (4, 2, 1)


def test_a_chain_may_end_where_older_versions_are_not_read_any_more() -> None:
    @dataclass
    class Late(MigratableState):
        VERSION = 7

    assert chain_of(Late) == {7: Late}
    with pytest.raises(IncompatibleStateError, match="found version 6; expected version 7; name the older"):
        migrated(1, 6, Late)


def test_state_types_are_still_decoded_by_msgspec() -> None:
    stored = msgspec.msgpack.encode(Named(4, "x"))
    assert migrated(msgspec.msgpack.decode(stored, type=chain_of(Tagged)[2]), 2, Tagged) == Tagged(4, ["x"])


@pytest.mark.parametrize("value_type", [int, Inverse])
def test_a_value_of_a_newer_version_is_refused(value_type: type) -> None:
    with pytest.raises(IncompatibleStateError, match=r"found version 5; .* run the newer code"):
        migrated(0, 5, value_type)


def test_a_failing_step_names_table_key_and_version_and_keeps_the_cause() -> None:
    with pytest.raises(IncompatibleStateError) as caught:
        migrated(0, 1)
    message = str(caught.value)
    assert "table shares: migration of a value from state version 3 to 4 failed" in message
    assert "key ('ada', 1); found ZeroDivisionError" in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_a_step_that_returns_another_type_is_refused() -> None:
    class Odd(MigratableState):
        VERSION = 2
        PREVIOUS = int

        @classmethod
        def migrate(cls, previous: int) -> Any:
            return previous

    with pytest.raises(IncompatibleStateError, match="found it returned int"):
        migrated(1, 1, Odd)


def state_type(version: Any, previous: Any) -> type[MigratableState]:
    members = {"VERSION": version, "PREVIOUS": previous, "migrate": classmethod(lambda cls, _: cls())}
    return type("State", (MigratableState,), members)


def test_a_gap_between_versions_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="int of version 1 before version 3"):
        chain_of(state_type(3, int))
    with pytest.raises(InvalidInputError, match="State of version 2 before version 2"):
        chain_of(state_type(2, state_type(2, int)))


def test_a_loop_of_versions_is_refused() -> None:
    first = state_type(2, None)
    first.PREVIOUS = state_type(3, first)
    with pytest.raises(InvalidInputError, match="versions of state types must go down by one"):
        chain_of(first)


@pytest.mark.parametrize("version", [0, True, "2", None])
def test_only_whole_numbers_from_one_are_versions_of_types(version: object) -> None:
    with pytest.raises(InvalidInputError, match="not a state version"):
        version_of(state_type(version, None))


def test_a_type_with_a_previous_one_must_say_how_to_migrate() -> None:
    class Silent(MigratableState):
        VERSION = 2
        PREVIOUS = int

    with pytest.raises(InvalidInputError, match="needs migrate: Silent"):
        chain_of(Silent)
