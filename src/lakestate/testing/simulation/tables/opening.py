"""The table of a history, if it has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lakestate.sinks.delta.library import require_deltalake
from lakestate.sinks.iceberg.catalog import require_pyiceberg
from lakestate.testing.simulation.cluster.small_limits import replace_values
from lakestate.testing.simulation.cluster.world import World
from lakestate.testing.simulation.tables.checks import TableChecks
from lakestate.testing.simulation.tables.target import SimulatedTable
from lakestate.testing.simulation.tables.visitor import run_table_visitor


@contextmanager
def open_table(world: World) -> Iterator[None]:
    """Give the world the table of its scenario, for one run."""
    if world.scenario.table == "none":
        yield
        return
    table = _table(world)
    with replace_values(table.values_replaced()):
        world.table, world.table_checks = table, TableChecks(world, table)
        try:
            yield
        finally:
            table.close()


def spawn_visitor(world: World) -> list[Any]:
    """The other writers of the table, if there are any."""
    table, checks = world.table, world.table_checks
    if table is None or not isinstance(checks, TableChecks) or not world.scenario.table_visitor:
        return []
    return [world.scheduler.spawn("table visitor", partial(run_table_visitor, world, table, checks))]


def _table(world: World) -> SimulatedTable:
    if world.scenario.table == "delta":
        require_deltalake()
        from lakestate.testing.simulation.tables.delta import SimulatedDelta

        return SimulatedDelta(world)
    require_pyiceberg()
    from lakestate.testing.simulation.tables.iceberg import SimulatedIceberg

    return SimulatedIceberg(world)
