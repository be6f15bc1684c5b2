"""`SimulatedTable`: a table that all processes of a history share, and what must be known of it.

Calls of the job go through `Process.call`, so that each may fail, stall, arrive late or twice. Other writers
and the outside reader act at once and without faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakestate.sinks.rolling import Roll
from lakestate.sinks.sink import Sink
from lakestate.tables.arrow.schema import arrow_fields
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.cluster.process import Process
from lakestate.testing.simulation.stores.store import SimulatedStore

if TYPE_CHECKING:
    from lakestate.storage.store import ObjectStore
    from lakestate.testing.simulation.cluster.world import World

Rows = list[dict[str, Any]]
KEY = "user"
"""The key of a table with one: the job has one user for each."""
_VISIBLE = timedelta(milliseconds=100)
"""About as long as an epoch takes: some show rows, and some do not."""


class SimulatedTable(ABC):
    """One table, with its data files in a simulated store."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = SimulatedStore("table", lambda: world.scheduler.now_ms)
        self.schema = pa.schema(arrow_fields(world.job.output_columns()))
        self.is_keyed = world.scenario.table_rows == "key"
        self.on_commit: Callable[[], None] = lambda: None
        """Called after every commit of the job that changed the table."""

    def sink(self, process: Process) -> Sink:
        """The sink as one process has it."""
        return self.sink_by(Reach(process, self))

    @abstractmethod
    def sink_by(self, reach: Reach) -> Sink:
        """The sink as it reaches the table in some way."""

    @abstractmethod
    def rows(self) -> Rows:
        """What an outside reader sees now."""

    @abstractmethod
    def recorded_epoch(self, fingerprint: str) -> int | None:
        """The newest epoch of a sink that the table itself records."""

    @abstractmethod
    def data_files(self) -> set[str]:
        """The paths in the store of the data files that readers open now."""

    @abstractmethod
    def appended_files(self) -> list[str]:
        """The data files that somebody reads who follows the table, and the newest commit of the job."""

    @abstractmethod
    def append(self, rows: Rows) -> None:
        """Another writer appends rows."""

    @abstractmethod
    def delete(self, column: str, value: int | str) -> None:
        """Another writer deletes rows by the value of a column."""

    @abstractmethod
    def compact(self) -> None:
        """Another writer puts one file in the place of all."""

    @abstractmethod
    def tidy(self) -> None:
        """Somebody removes history that readers of the newest version do not need."""

    @abstractmethod
    def values_replaced(self) -> Sequence[tuple[Any, str, Any]]:
        """Values of modules during a history: nobody waits between tries, and no library uses threads."""

    def copy_file(self, path: str, data: bytes) -> None:
        """A file of the job is in the store."""
        return

    def close(self) -> None:
        """Remove what is not in memory."""
        return

    def arrow(self, rows: Rows) -> pa.Table:
        """Rows as Arrow."""
        return pa.Table.from_pylist(rows, schema=self.schema)

    def settings(self) -> dict[str, Any]:
        """The settings of the sink, for every table format."""
        scenario = self.world.scenario
        if self.is_keyed:
            return {"key": [KEY], "create": False}
        visible = _VISIBLE if scenario.table_rows == "visible" else None
        return {
            "roll": Roll(bytes=scenario.roll_bytes, interval="2 minutes", visible=visible),
            "part_bytes": scenario.part_bytes,
            "upload_threads": 0,
            "kept_row_bytes": 500,
            "create": False,
        }


class Reach:
    """A table as one process reaches it."""

    def __init__(self, process: Process, table: SimulatedTable) -> None:
        self.process = process
        self.table = table

    def call(self, operation: Operation, what: str, act: Callable[[], Any]) -> Any:
        """One call, with its faults. Names that libraries choose at random are not part of `what`."""
        return self.process.call(self.table.store, operation, f"table: {what}", act)

    def client(self) -> ObjectStore:
        """The data files."""
        return self.process.client(self.table.store)


class DirectReach(Reach):
    """A table as it is reached without faults, when no time passes."""

    def call(self, operation: Operation, what: str, act: Callable[[], Any]) -> Any:
        """Act at once."""
        return act()

    def client(self) -> ObjectStore:
        """The data files."""
        return self.process.direct_client(self.table.store)


def newest_by_key(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last row of each key."""
    return {str(row[KEY]): row for row in rows}
