"""How tables show themselves: as they are declared."""

from __future__ import annotations

import pytest

import lakestate as ls


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        (
            ls.KeyedTable(
                "t", key="user string, i int", value="n bigint", route_by=["user"], ttl="90 minutes"
            ),
            "KeyedTable('t', key='user string, i int', value='n bigint', route_by=['user'], ttl='1:30:00')",
        ),
        (
            ls.KeyedTable("t", key="k int", value="ts timestamp", ttl=ls.Ttl("1 day", "ts")),
            "KeyedTable('t', key='k int', value='ts timestamp', time='ts', ttl='1 day, 0:00:00')",
        ),
        (
            ls.TimeKeyTable("clicks", key="k int", value="ts timestamp, page string", retention="1 hour"),
            (
                "TimeKeyTable('clicks', key='k int', value='ts timestamp not null, page string', time='ts', "
                "retention='1:00:00')"
            ),
        ),
        (
            ls.GlobalKeyedTable("g", key=str, value=dict[str, int], two_phase_commit=True),
            "GlobalKeyedTable('g', key='str', value='dict[str, int]', two_phase_commit=True)",
        ),
        (ls.KeyedTable(key="k int", value="n int"), "KeyedTable(not named yet)"),
    ],
)
def test_a_table_shows_its_declaration(table: ls.Table, shown: str) -> None:
    assert repr(table) == shown
