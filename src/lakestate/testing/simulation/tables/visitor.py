"""Other writers of the table: they append, delete, compact and remove history while the job commits."""

from __future__ import annotations

from random import Random

from lakestate.testing.simulation.cluster.world import World
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.tables.checks import OTHERS_FROM, TableChecks
from lakestate.testing.simulation.tables.target import KEY, SimulatedTable

VISITS = 5


def run_table_visitor(world: World, table: SimulatedTable, checks: TableChecks) -> None:
    """Visit the table at random times, without faults: the job has them."""
    # A stream of its own, so that leaving the visitor out does not change what other actors draw.
    random = random_stream(world.seed, "table visitor")
    for number in range(VISITS):
        world.scheduler.sleep(int(random.random() * 1_500))
        what = random.choice(("append", "delete", "compact", "compact", "tidy"))
        world.note(f"somebody else: {what} of the table", is_turning_point=True)
        world.counts[f"{what} by others"] += 1
        match what:
            case "append":
                _append(world, table, checks, number)
            case "delete":
                _delete(table, checks, random)
            case "compact":
                if len(table.data_files()) > 1:
                    table.compact()
            case _:
                table.tidy()
        checks.check()


def _append(world: World, table: SimulatedTable, checks: TableChecks, number: int) -> None:
    row = {"id": OTHERS_FROM + number, "user": f"other {number}", "n": 0, "ticket": "of others"}
    table.append([row])
    checks.on_append([row])


def _delete(table: SimulatedTable, checks: TableChecks, random: Random) -> None:
    column = KEY if table.is_keyed else "id"
    values = sorted({row[column] for row in table.rows()})
    if values:
        value = random.choice(values)
        gone = [row for row in table.rows() if row[column] == value]
        table.delete(column, value)
        checks.on_delete_rows(gone)
