"""Check copies of open files: with them, every committed row of output can be read by path."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lakestate.protocol.values import Epoch
from lakestate.sinks.files.names import epoch_begun, sink_fingerprint
from lakestate.sinks.files.snapshots import STORE_FOLDER
from lakestate.testing.simulation.checks.read_back import output_rows
from lakestate.testing.simulation.cluster.world import JOB_ID, World
from lakestate.testing.simulation.promises import Promise


def check_snapshots(world: World, epoch: Epoch) -> None:
    """An epoch is marked as committed: each of its rows is in a visible file or in a copy.

    Not in both for long, but a zombie may put a small copy again, which stays until clean-up.
    """
    newest = world.monitor.newest
    if not world.scenario.snapshots or world.scenario.loses_part or newest is None:
        return
    went_back = newest.manifest.went_back
    # A job that goes back has no copies before its next epoch.
    if newest.manifest.epoch != epoch or (went_back is not None and went_back.epoch == epoch):
        return
    for sink_id in world.outputs:
        expected = world.monitor.expected_output(sink_id, newest.seen)
        rows = [*world.monitor.visible(sink_id), *_copied_rows(world, sink_id, newest.manifest.state_id)]
        missing = (expected or Counter()) - Counter(world.job.comparable(rows))
        if missing:
            found = f"{sink_id} in epoch {epoch}: {dict(next(iter(missing)))} and {missing.total() - 1} more"
            world.fail(Promise.OPEN_ROWS_READABLE, found)


def snapshots_of(world: World, sink_id: str, state_id: str) -> dict[str, Epoch]:
    """The copies of a sink's open files, with the epochs that made them."""
    if sink_id not in world.outputs:
        return {}
    fingerprint = sink_fingerprint(JOB_ID, sink_id, state_id)
    begun = {
        path: epoch_begun(path, fingerprint) for path in world.outputs[sink_id].paths(f"{STORE_FOLDER}/")
    }
    return {path: epoch for path, epoch in begun.items() if epoch is not None}


def _copied_rows(world: World, sink_id: str, state_id: str) -> list[dict[str, Any]]:
    store = world.outputs[sink_id]
    return [
        row
        for path in snapshots_of(world, sink_id, state_id)
        for row in output_rows(world, store.get(path).data)
    ]
