"""Does a declared table fit what is stored: yes, after a migration, or no with every reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakestate.protocol.compatibility import (
    Compatibility,
    Compatible,
    Incompatible,
    NeedsMigration,
    compatibility,
    widens,
)
from lakestate.protocol.metadata import Column, TableConfig
from lakestate.protocol.table_types import KEYED, TIME_KEY

USER, ITEM = Column("user", "string"), Column("item", "bigint")
COUNT = Column("n", "bigint")
STORED = TableConfig(
    "totals",
    KEYED,
    state_version=2,
    key_columns=(USER, ITEM),
    value_columns=(COUNT,),
    routing_columns=("user",),
)
RAISE = "raise the state version and declare the change"
RENAMED = "(user string, thing bigint)"


@pytest.mark.parametrize(
    ("declared", "answer"),
    [
        pytest.param(STORED, Compatible(), id="the same"),
        pytest.param(replace(STORED, ttl_us=5, description="new"), Compatible(), id="another time to live"),
        pytest.param(
            replace(STORED, key_columns=(replace(USER, unknown_fields=b"x"), ITEM)),
            Compatible(),
            id="a column that a newer version said more about",
        ),
        pytest.param(replace(STORED, state_version=3), NeedsMigration(2, 3), id="a newer version"),
        pytest.param(
            replace(STORED, state_version=3, value_columns=()), NeedsMigration(2, 3), id="newer, other values"
        ),
        pytest.param(
            replace(
                STORED,
                state_version=3,
                key_columns=(Column("customer", "string"), ITEM),
                routing_columns=("customer",),
            ),
            NeedsMigration(2, 3),
            id="newer, the routing key renamed",
        ),
        pytest.param(
            replace(STORED, state_version=5),
            Incompatible(("no migration from state version 2 to 5",)),
            id="newer without a chain",
        ),
        pytest.param(
            replace(STORED, state_version=1),
            Incompatible(("stored with state version 2, newer than the declared 1: run the newer code",)),
            id="an older version",
        ),
        pytest.param(
            replace(STORED, table_type=TIME_KEY),
            Incompatible(("stored as keyed, declared as time_key",)),
            id="another type",
        ),
        pytest.param(
            replace(STORED, state_version=3, key_columns=(USER, Column("item", "int"))),
            Incompatible(("key is (user string, item bigint), declared (user string, item int)",)),
            id="another key type hashes to other subtasks, whatever the version",
        ),
        pytest.param(
            replace(STORED, state_version=3, routing_columns=("user", "item")),
            Incompatible(("routed by ('user',), declared ('user', 'item')",)),
            id="another routing, whatever the version",
        ),
        pytest.param(
            replace(
                STORED, key_columns=(USER, Column("thing", "bigint")), value_columns=(Column("n", "double"),)
            ),
            Incompatible(
                (
                    f"key columns are (user string, item bigint), declared {RENAMED}: {RAISE}",
                    f"value columns are (n bigint), declared (n double): {RAISE}",
                )
            ),
            id="two changes without a version, both named",
        ),
        pytest.param(
            replace(STORED, time_column="n", ttl_us=1),
            Compatible(),
            id="a time to live that follows a column",
        ),
        pytest.param(
            replace(STORED, key_columns=(Column("user", "string", nullable=False), ITEM)),
            Incompatible(
                (
                    "key columns are (user string, item bigint), declared "
                    "(user string not null, item bigint): " + RAISE,
                )
            ),
            id="nullability without a version",
        ),
    ],
)
def test_the_answer_is(declared: TableConfig, answer: Compatibility) -> None:
    assert compatibility(STORED, declared, migrates_from={2} if declared.state_version == 3 else ()) == answer


def test_a_time_to_live_follows_the_same_column_for_good() -> None:
    timed = replace(STORED, time_column="n", ttl_us=1)
    answer = Incompatible(("time column is n, declared None",))
    assert compatibility(timed, STORED) == answer
    by_time = TableConfig("clicks", TIME_KEY, value_columns=(COUNT,))
    answer = Incompatible(("time column is None, declared n",))
    assert compatibility(by_time, replace(by_time, time_column="n")) == answer


BY_TIME = TableConfig("clicks", TIME_KEY, value_columns=(COUNT,), time_column="ts")
ONLY_RENAMED = "a migration can rename it with ColumnChanges, but cannot choose another column"


@pytest.mark.parametrize(
    ("declared", "was", "answer"),
    [
        pytest.param("ts", None, NeedsMigration(1, 2), id="the same"),
        pytest.param("at", "ts", NeedsMigration(1, 2), id="renamed"),
        pytest.param(
            "seen",
            None,
            Incompatible((f"time column is ts, declared seen: {ONLY_RENAMED}",)),
            id="another column",
        ),
        pytest.param(
            "at",
            "seen",
            Incompatible((f"time column is ts, declared at, which was seen: {ONLY_RENAMED}",)),
            id="another column, renamed",
        ),
    ],
)
def test_in_a_newer_version_the_event_time_is_the_same_column(
    declared: str, was: str | None, answer: Compatibility
) -> None:
    newer = replace(BY_TIME, state_version=2, time_column=declared)
    assert compatibility(BY_TIME, newer, migrates_from={1}, time_column_before=was) == answer


def test_a_time_to_live_may_go_by_another_column_in_a_newer_version() -> None:
    stored = replace(STORED, time_column="ts", ttl_us=5)
    newer = replace(stored, state_version=3, time_column="seen")
    assert compatibility(stored, newer, migrates_from={2}) == NeedsMigration(2, 3)


TYPES = ["tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(12,2)"]
TYPES += ["decimal(12,4)", "string"]
WIDER = {
    "tinyint": {"smallint", "int", "bigint", "double"},
    "smallint": {"int", "bigint", "double"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "decimal(10,2)": {"decimal(12,2)", "decimal(12,4)"},
}


@pytest.mark.parametrize("narrow", TYPES)
def test_a_type_widens_to_itself_and_to_those_that_hold_all_its_values(narrow: str) -> None:
    assert {wide for wide in TYPES if widens(narrow, wide)} == {narrow} | WIDER.get(narrow, set())
