"""Checks of forks: what an epoch of a fork refers to is there, and stays for as long as the epoch does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakestate.coordinator.retention.retain import references_of
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.testing.simulation.promises import Promise
from lakestate.testing.simulation.stores.objects import SimulatedObjects

if TYPE_CHECKING:
    from lakestate.testing.simulation.cluster.world import World

FORKS = "fork-"
"""How the names of forks begin."""


class ForkChecks:
    """What the epochs of all forks need, as paths of the store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._needs: dict[str, frozenset[str]] = {}

    def on_write(self, path: str, data: bytes) -> None:
        """Check an epoch of a fork when it is published."""
        job_id, _, below = path.partition("/")
        name = parse_object_name(below)
        if not job_id.startswith(FORKS) or name.kind is not ObjectKind.EPOCH_RECORD or name.epoch is None:
            return
        objects = SimulatedObjects(self._world.state, job_id)
        record = objects.decode_epoch_record(name.epoch, data)
        found = references_of(objects, record, objects.read_manifest(record))
        marker = objects.paths.commit_marker(name.epoch)
        self._needs[path] = frozenset(objects.store_path(each) for each in found if each != marker)
        self._world.counts["epochs of forks"] += 1
        for each in self._needs[path]:
            if not self._world.state.contains(each):
                self._world.fail(Promise.FORK_WHOLE, f"{path} refers to {each}")

    def on_delete(self, path: str) -> None:
        """Check that nothing of a fork's epochs is deleted. An epoch without its record is given up."""
        self._needs.pop(path, None)
        for epoch, needs in self._needs.items():
            if path in needs:
                self._world.fail(Promise.FORK_WHOLE, f"{path} is deleted, which {epoch} needs")

    def needed(self) -> frozenset[str]:
        """Everything that the epochs of forks need."""
        return frozenset(path for needs in self._needs.values() for path in needs)
