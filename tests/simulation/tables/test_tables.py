"""Whole jobs that write to tables of Delta and Iceberg, under the faults of all others."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from itertools import count

import pytest
from tests.simulation.tables.table_mutations import TABLES, TableMutation

from lakestate.testing.simulation import FaultKind, Scenario, run_seed
from lakestate.testing.simulation.__main__ import NOT_AS_ASKED, main
from lakestate.testing.simulation.campaigns.exhaustive import SMALL, single_faults
from lakestate.testing.simulation.campaigns.shrink import shrink
from lakestate.testing.simulation.campaigns.sweep import Sweep, Task, run_tasks, sweep

SEEDS_SHARE = 12
SEEDS = 36
"""So many in `make test`, the others in `make test-full`."""

ALWAYS = {"table commits", "compact by others", "rescaled", "epochs collected", "merges"}
OFTEN = ALWAYS | {
    "append by others",
    "delete by others",
    "tidy by others",
    "went back",
    "two drivers",
    "pauses",
    "answer_lost",
    "crash_after",
    "late",
}


def check(total: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{total}")
    for task, _ in total.failed[:1]:
        pytest.fail(str(shrink(task.seed, task.scenario, task.script)), pytrace=False)


@pytest.fixture
def silent(caplog: pytest.LogCaptureFixture) -> None:
    """What runs histories makes the loggers silent; said here, they are not for the tests after this one."""
    caplog.set_level(logging.CRITICAL, "lakestate")


@pytest.mark.parametrize(
    ("seeds", "met"),
    [
        pytest.param(range(SEEDS_SHARE), ALWAYS, id="some"),
        pytest.param(range(SEEDS_SHARE, SEEDS), OFTEN, id="others", marks=pytest.mark.full),
    ],
)
def test_no_promise_is_broken_in_histories_with_tables(
    seeds: range, met: set[str], capsys: pytest.CaptureFixture[str], silent: None
) -> None:
    # In this process: others would take longer to load the libraries than the histories take.
    total = run_tasks([Task.with_table(seed) for seed in seeds])
    check(total, capsys)
    assert total.runs == len(seeds)
    assert met <= {name for name, times in total.counts.items() if times}


@pytest.mark.soak
def test_no_promise_is_broken_with_tables_for_as_long_as_there_is_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [int(seed) for seed in os.environ.get("SEEDS", "").split(",") if seed]
    seconds_max = None if given else float(os.environ.get("SOAK_MINUTES", "10")) * 60
    check(sweep(map(Task.with_table, given or count(SEEDS)), seconds_max=seconds_max), capsys)


ROWS = ("append", "visible", "key")
SMALL_TABLE = replace(SMALL, sinks=0, rows=7, roll_bytes=2_000, commits=False, upgrade_at=None)


@pytest.mark.soak
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("table", ["delta", "iceberg"])
def test_any_fault_at_any_call_of_a_history_with_a_table_is_made_good(
    table: str, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = list(single_faults(tuple(FaultKind), replace(SMALL_TABLE, table=table, table_rows=rows)))
    check(sweep(tasks), capsys)
    assert len({call for task in tasks for call in task.script or ()}) > 100


@pytest.mark.parametrize("table", ["delta", "iceberg"])
def test_a_seed_always_makes_the_same_history_of_a_table(table: str) -> None:
    scenario = replace(Task.with_table(3).scenario or Scenario(), table=table, table_rows="visible", rows=6)
    first, again = (run_seed(3, scenario=scenario, traced=True) for _ in range(2))
    assert first.trace == again.trace
    assert first.counts["table commits"]


def test_the_command_that_repeats_a_history_names_its_table() -> None:
    task = Task(3, Scenario(table="delta", table_rows="key"))
    assert "--set 'table='\"'\"'delta'\"'\"''" in task.command
    assert "--set 'table_rows='\"'\"'key'\"'\"''" in task.command


def test_histories_with_tables_have_no_journal(
    tmp_path: os.PathLike[str], capsys: pytest.CaptureFixture[str], silent: None
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["soak", "--tables", "--seeds", "1", "--journal", f"{tmp_path}/figures"])
    assert ended.value.code == NOT_AS_ASKED
    assert "leave out --journal or --tables" in capsys.readouterr().err


CASES = [
    pytest.param(each, id=str(each), marks=[pytest.mark.soak if each.is_rare else pytest.mark.full])
    for each in TABLES
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", CASES)
def test_the_simulator_notices(mutation: TableMutation, capsys: pytest.CaptureFixture[str]) -> None:
    found = mutation.seeds_to_find()
    assert found is not None, f"{mutation.seeds_max} seeds did not show: {mutation.name}"
    with capsys.disabled():
        print(f"\n| {mutation} | {found[0]} | {found[1].split(':')[0]} |")
