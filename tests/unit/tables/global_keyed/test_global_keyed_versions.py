from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.jobs.replicated_operator import (
    TOTALS,
    operator_with,
)

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.migration.values import MigratableState


@dataclass(frozen=True)
class Profile(MigratableState):
    name: str
    VERSION = 1


@dataclass(frozen=True)
class ProfileV2(MigratableState):
    name: str
    visits: int
    VERSION = 2
    PREVIOUS = Profile

    @classmethod
    def migrate(cls, previous: Profile) -> ProfileV2:
        return cls(previous.name, 0)


@dataclass(frozen=True)
class ProfileV3(MigratableState):
    label: str
    visits: int
    VERSION = 3
    PREVIOUS = ProfileV2

    @classmethod
    def migrate(cls, previous: ProfileV2) -> ProfileV3:
        return cls(previous.name.upper(), previous.visits)


def profiles(value: Any) -> GlobalKeyedTable:
    return GlobalKeyedTable("profiles", key=int, value=value)


def test_values_of_older_versions_are_migrated_through_all_steps_when_read() -> None:
    operator = operator_with({1: Profile("ada")}, profiles(Profile))
    operator.restore(1, profiles(ProfileV2))
    operator.views[0].insert(2, ProfileV2("bob", 5))
    operator.checkpoint()
    operator.restore(1, profiles(ProfileV3))
    assert operator.views[0].get_all() == {1: ProfileV3("ADA", 0), 2: ProfileV3("BOB", 5)}


def test_a_merge_with_types_brings_values_to_the_declared_version() -> None:
    operator = operator_with({1: Profile("ada"), 3: Profile("cyd")}, profiles(Profile))
    operator.restore(1, profiles(ProfileV3))
    operator.views[0].insert(2, ProfileV3("BOB", 5))
    operator.views[0].remove(3)
    operator.checkpoint()
    merge = operator.compact()
    assert merge is not None
    assert [file.state_version for file in merge.merged] == [3]
    operator.restore(1)
    assert operator.views[0].get_all() == {1: ProfileV3("ADA", 0), 2: ProfileV3("BOB", 5)}


def test_a_merge_without_types_leaves_mixed_versions_alone() -> None:
    operator = operator_with({1: Profile("ada")}, profiles(Profile))
    operator.restore(1, profiles(ProfileV2))
    operator.views[0].insert(2, ProfileV2("bob", 5))
    operator.checkpoint()
    assert operator.compact(table=GlobalKeyedTable.from_config(operator.table.config)) is None


def test_a_merge_without_types_keeps_an_older_version_as_it_is() -> None:
    operator = operator_with({1: Profile("ada")}, profiles(Profile))
    operator.views[0].insert(2, Profile("bob"))
    operator.checkpoint()
    merge = operator.compact(table=GlobalKeyedTable.from_config(profiles(ProfileV2).config))
    assert merge is not None
    assert [file.state_version for file in merge.merged] == [1]
    operator.restore(1, profiles(ProfileV2))
    assert operator.views[0].get_all() == {1: ProfileV2("ada", 0), 2: ProfileV2("bob", 0)}


def test_a_newer_version_is_refused_and_the_file_named() -> None:
    operator = operator_with({1: ProfileV2("ada", 1)}, profiles(ProfileV2))
    operator.restore(1, profiles(Profile))
    with pytest.raises(IncompatibleStateError, match="run the newer code") as caught:
        operator.views[0].get(1)
    assert operator.files.files[0].path in str(caught.value)


def test_an_older_version_without_a_type_is_refused() -> None:
    operator = operator_with({"a": 1})
    operator.restore(1, GlobalKeyedTable("totals", key=str, value=float, version=2))
    with pytest.raises(IncompatibleStateError, match="MigratableState"):
        operator.views[0].get("a")


def test_the_versions_that_can_be_read_are_declared() -> None:
    assert profiles(ProfileV3).migrates_from == frozenset({1, 2})
    assert profiles(ProfileV3).config.state_version == 3
    assert TOTALS.migrates_from == frozenset()


def test_a_version_that_is_not_the_types_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"ProfileV2\.VERSION = 2"):
        GlobalKeyedTable("profiles", key=int, value=ProfileV2, version=5)
