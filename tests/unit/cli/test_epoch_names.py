"""Tables of other epochs in SQL: which names are meant, and which only look like it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.command_line import run_command

from lakestate.cli.rows.epoch_names import quote_epochs


@pytest.mark.parametrize(
    ("sql", "expected", "epochs"),
    [
        ("FROM totals@12", 'FROM "totals@12"', ["12"]),
        ("  from Op.totals@12 t", '  from Op."totals@12" t', ["12"]),
        ('FROM "an.op"."by.bytes"@2', 'FROM "an.op"."by.bytes@2"', ["2"]),
        ("FROM a@1,b@newest,a@1", 'FROM "a@1","b@newest","a@1"', ["1", "newest"]),
        ("SELECT a@1.n-1 FROM a@1;", 'SELECT "a@1".n-1 FROM "a@1";', ["1"]),
        ("FROM a@before-sale--later", 'FROM "a@before-sale"--later', ["before-sale"]),
        ("FROM a@2026-01-31 WHERE x", 'FROM "a@2026-01-31" WHERE x', ["2026-01-31"]),
        ("SELECT 'ä😀', * FROM übe@3)", "SELECT 'ä😀', * FROM \"übe@3\")", ["3"]),
        ("FROM rows@1 JOIN op.filter@2", 'FROM "rows@1" JOIN op."filter@2"', ["1", "2"]),
        ('FROM "totals@x y", per."t@2"', 'FROM "totals@x y", per."t@2"', ["x y", "2"]),
    ],
)
def test_a_name_with_an_epoch_is_a_table(sql: str, expected: str, epochs: list[str]) -> None:
    assert quote_epochs(sql) == (expected, epochs)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'a@1', 'it''s a@1', E'\\'a@1', $$a@1$$, $x$ a@1 \"b@2\" $x$",
        'SELECT 1 -- FROM a@1\n/* a@1 /* b@1 */ "c@1" */',
        "SELECT @n, -@n, 5@n, (n)@1 WHERE n>1 AND@n<3 OR n BETWEEN@a AND@b",
        "SELECT a @1, a@ 1, a @ 1, a@>b, a<@b, a@-1",
        "SELECT 'never closed a@1",
        'SELECT "never closed a@1',
        "",
    ],
)
def test_what_only_looks_like_it_stays_as_it_is(sql: str) -> None:
    assert quote_epochs(sql) == (sql, [])


def test_what_show_tables_lists_can_be_asked(state: Path) -> None:
    listed = json.loads(run_command("sql", "clicks", "SHOW TABLES", "--output", "json").out)
    names = [row["name"] for row in listed]
    assert {"seen", '"pages"."seen"'} <= set(names)
    assert [run_command("sql", "clicks", f"FROM {name}").code for name in names] == [0] * len(names)
