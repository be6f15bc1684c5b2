"""Other jobs over the same output: one of the same name with a checkpoint of its own, and a copy of the job.

The first keeps a file open and cleans up as if it were far ahead: it may touch nothing of the job, nor the
job anything of it. The second has the job's state and with it the fingerprint: it must be refused.
"""

from __future__ import annotations

from lakestate.errors import InvalidInputError
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.names import FileNaming, sink_fingerprint
from lakestate.sinks.files.owner_marks import OWNERS_FOLDER
from lakestate.sinks.files.pre_commit import OpenReference, PreCommit
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.testing.simulation.cluster.engine import sinks_of
from lakestate.testing.simulation.cluster.process import Process
from lakestate.testing.simulation.cluster.world import JOB_ID, World
from lakestate.testing.simulation.promises import Promise
from lakestate.testing.simulation.random_streams import random_stream
from lakestate.testing.simulation.stores.objects import SimulatedObjects

VISITS = 6
FAR_AHEAD = Epoch(1000)
STATE_ID = "of-the-neighbour"
COPY = "memory://copy"


def run_neighbour(world: World) -> None:
    """Visit the outputs at random times, without faults: the job has them."""
    # A stream of its own, so that leaving the neighbour out does not change what other actors draw.
    random = random_stream(world.seed, "neighbour")
    sinks = sinks_of(world, Process(world, "namesake", "elsewhere").direct_client)
    for sink_id, sink in sinks.items():
        _begin_file(world, sink_id, sink)
    for _ in range(VISITS):
        world.scheduler.sleep(int(random.random() * 1_500))
        for sink_id, sink in sinks.items():
            _clean_up(world, sink_id, sink)
            _start_copy(world, sink_id, sink)


def _begin_file(world: World, sink_id: str, sink: FileSink) -> None:
    fingerprint = sink_fingerprint(JOB_ID, sink_id, STATE_ID)
    path = FileNaming(extension="json").name(fingerprint, Epoch(1), 0, "neighbour")
    sink.store.uploads.start(path)
    world.foreign_uploads[sink_id].append(path)


def _clean_up(world: World, sink_id: str, sink: FileSink) -> None:
    dangling = [each.upload for each in sink.store.uploads.list_dangling()]
    ours = [upload for upload in dangling if upload.path in world.foreign_uploads[sink_id]]
    kept = tuple(OpenReference(upload.path, upload.token) for upload in ours)
    fingerprint = sink_fingerprint(JOB_ID, sink_id, STATE_ID)
    sink.committer().clean_up(JOB_ID, FAR_AHEAD, [PreCommit(fingerprint, open=kept).encode()])
    world.counts["clean-ups of a neighbour"] += 1


def _start_copy(world: World, sink_id: str, sink: FileSink) -> None:
    fence = SimulatedObjects(world.state, JOB_ID).read_fence()
    if fence is None or not list(sink.store.list(f"{OWNERS_FOLDER}/")):
        return
    owner = OutputOwner(JOB_ID, sink_id, fence.record.state_id, COPY)
    try:
        sink.claim_output(owner, OutputClaim.OWN)
    except InvalidInputError:
        world.counts["copies refused"] += 1
    else:
        world.fail(Promise.ONE_OWNER, f"{sink_id}: {owner}")
