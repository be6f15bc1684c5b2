"""Check that nothing is left behind: unneeded objects are collected, and no upload stays open."""

from __future__ import annotations

from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.protocol.metadata import SinkPreCommit
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.protocol.retention import RetentionPolicy, RetentionRefused
from lakestate.runtime.sink_step import sink_clean_up
from lakestate.sinks.files.names import epoch_begun, sink_fingerprint
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.sink import Sink
from lakestate.testing.simulation.checks.snapshots import snapshots_of
from lakestate.testing.simulation.cluster.engine import sinks_of
from lakestate.testing.simulation.cluster.process import Process
from lakestate.testing.simulation.cluster.world import JOB_ID, TABLE, World
from lakestate.testing.simulation.promises import Promise
from lakestate.testing.simulation.stores.objects import SimulatedObjects
from lakestate.testing.simulation.tables.target import DirectReach


def check_retention(world: World) -> None:
    """One undisturbed retention must leave nothing of collected epochs."""
    objects, process = SimulatedObjects(world.state, JOB_ID), Process(world, "janitor", "janitor")
    if world.monitor.newest is None:
        return
    claim = claim_generation(objects, process)
    plan = retain_epochs(objects, claim, RetentionPolicy(world.scenario.keep_epochs), process)
    if isinstance(plan, RetentionRefused):
        world.fail(Promise.RETENTION_WORKS, plan.damages)
    published = world.monitor.published
    # A tag that was never acknowledged may have been written after the boundary, and keep what was left.
    kept = {*world.monitor.retained_epochs(), *(tag.epoch for tag in objects.read_tags())}
    needed = {path for epoch in kept if epoch in published for path in published[epoch].needs}
    shared = world.monitor.forks.needed()
    for path in world.state.paths(f"{JOB_ID}/"):
        name = parse_object_name(path.removeprefix(f"{JOB_ID}/"))
        is_old = name.epoch is not None and name.epoch < world.monitor.oldest
        is_marker = name.kind is ObjectKind.COMMITTED and name.epoch in kept
        if is_old and not is_marker and name.path not in needed and path not in shared:
            world.fail(Promise.UNNEEDED_COLLECTED, path)


def check_uploads(world: World) -> None:
    """All output is finished, so clean-up must leave no upload of the job, and touch no other upload."""
    newest = world.monitor.newest
    if newest is None:
        return
    janitor = Process(world, "janitor", "janitor")
    sinks: dict[str, Sink] = dict(sinks_of(world, janitor.direct_client))
    if world.table is not None and not world.table.is_keyed:
        sinks[TABLE] = world.table.sink_by(DirectReach(janitor, world.table))
    sink_clean_up(sinks, JOB_ID)(newest.manifest)
    # The record of a completed upload may have arrived again: the clean-up of a later epoch removes it.
    finished = {
        path for entry in newest.manifest.sinks if entry.sink_id in sinks for path in _finished_paths(entry)
    }
    for sink_id, sink in sinks.items():
        files = sink.file_sink()
        assert files is not None
        left = {each.upload.path for each in files.store.uploads.list_dangling()}
        for path in world.foreign_uploads.get(sink_id, ()):
            if path not in left:
                world.fail(Promise.FOREIGN_UNTOUCHED, f"the upload of {path}")
        for path, epoch in snapshots_of(world, sink_id, newest.manifest.state_id).items():
            if epoch <= newest.manifest.epoch:
                world.fail(Promise.COPIES_REMOVED, path)
        fingerprint = sink_fingerprint(JOB_ID, sink_id, newest.manifest.state_id)
        for path in sorted(left - finished):
            begun = epoch_begun(path, fingerprint)
            if begun is not None and begun <= newest.manifest.epoch:
                world.fail(Promise.UPLOADS_CLOSED, path)


def _finished_paths(entry: SinkPreCommit) -> list[str]:
    parts = decode_pre_commits(entry.data, entry.sink_id)
    return [file.path for data in parts for file in PreCommit.decode(data).finished]
