"""The staged sink that delivers to the simulated target, and what must hold there."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pyarrow as pa

from lakestate.sinks.formats.json_lines.writer import JsonLinesWriter
from lakestate.sinks.kafka.delivery import Delivery
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.sinks.staged.sink import StagedSink
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.checks.read_back import counter_difference
from lakestate.testing.simulation.cluster.process import Process
from lakestate.testing.simulation.cluster.transaction_log import ProcessLog
from lakestate.testing.simulation.cluster.world import World
from lakestate.testing.simulation.promises import Promise

Rows = list[dict[str, Any]]
LOG_ATTEMPTS_MAX = 3


class DeliverySink(StagedSink):
    """Delivers to the target as one process reaches it: a transaction is one call, with its faults."""

    def __init__(self, process: Process) -> None:
        self._process = process
        world = process.world
        log = ProcessLog(process, world.log, partial(_target_rows, world), partial(_check_committed, world))
        self._to_log = Delivery(log, LOG_ATTEMPTS_MAX, wait=lambda attempt: None)

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Take everything."""

    def deliver(self, epoch: StagedEpoch) -> None:
        """Deliver all rows of the epoch in one transaction."""
        world = self._process.world
        if world.scenario.delivers_to_log:
            self._to_log.deliver(epoch)
            return
        parts = epoch.deliver_parts(
            lambda part: [row for table in part.tables() for row in _target_rows(world, table)]
        )
        rows = [row for part in parts for row in part]
        self._process.call(
            world.target,
            Operation.PUT,
            f"delivery-{epoch.epoch}",
            partial(_transact, world, epoch, rows),
        )


def _target_rows(world: World, table: pa.Table) -> Rows:
    """Rows as the oracle of the scenario knows them: like those of its files."""
    if world.scenario.is_parquet:
        return list(table.to_pylist())
    writer = JsonLinesWriter(table.schema)
    return [
        json.loads(line) for batch in table.to_batches() for line in writer.encode_rows(batch).splitlines()
    ]


def _transact(world: World, epoch: StagedEpoch, rows: Rows) -> None:
    # The fence is not looked at: it was read before the rows were, and the marker at the target decides.
    if world.monitor.seen_by_epoch(epoch.epoch) is None:
        world.fail(Promise.COMMIT_AFTER_PUBLISHING, f"delivery of epoch {epoch.epoch}")
    elif world.delivered.transact(epoch.epoch, rows):
        _check_committed(world, epoch)
    else:
        world.counts["deliveries repeated"] += 1


def _check_committed(world: World, epoch: StagedEpoch) -> None:
    """Check that the target has what was published up to an epoch that has just been delivered."""
    seen = world.monitor.seen_by_epoch(epoch.epoch)
    if seen is None:
        world.fail(Promise.COMMIT_AFTER_PUBLISHING, f"delivery of epoch {epoch.epoch}")
        return
    world.counts["deliveries"] += 1
    expected = world.job.output(seen)
    if expected is not None:
        found, wanted = (Counter(world.job.comparable(each)) for each in (_delivered(world), expected))
        difference = counter_difference(found, wanted)
        if difference:
            world.fail(Promise.DELIVERED_EXACT, f"epoch {epoch.epoch}: {difference}")


def check_delivered(world: World) -> None:
    """Check that the target has every row of the job, once."""
    expected = world.job.output(world.monitor.seen)
    if not world.scenario.delivers or expected is None:
        return
    found, wanted = (Counter(world.job.comparable(each)) for each in (_delivered(world), expected))
    difference = counter_difference(found, wanted)
    if difference:
        world.fail(Promise.DELIVERED_EXACT, difference)


def _delivered(world: World) -> Rows:
    return world.log.rows if world.scenario.delivers_to_log else world.delivered.rows
