"""What the subtasks of a file sink left in an epoch: files that they finished, and files that are open."""

from __future__ import annotations

from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.protocol.metadata import Manifest
from lakestate.sinks.files.pre_commit import PreCommit


def pre_commits_of(sink_id: str, manifest: Manifest) -> list[PreCommit]:
    """The pre-commits of a sink in an epoch."""
    where = f"manifest of epoch {manifest.epoch}"
    return [
        PreCommit.decode(data)
        for each in manifest.sinks
        if each.sink_id == sink_id
        for data in decode_pre_commits(each.data, where)
    ]


def open_tokens(sink_id: str, manifest: Manifest) -> dict[str, str]:
    """The files that an epoch keeps open, with the upload or hidden file that holds their bytes."""
    return {each.path: each.token for part in pre_commits_of(sink_id, manifest) for each in part.open}


def snapshot_paths(sink_id: str, manifest: Manifest) -> tuple[str, ...]:
    """The copies of open files that an epoch refers to."""
    parts = pre_commits_of(sink_id, manifest)
    return tuple(each.snapshot for part in parts for each in part.open if each.snapshot)
