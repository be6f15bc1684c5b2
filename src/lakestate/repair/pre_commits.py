"""What subtasks left to commit in an epoch; those of file sinks: files that they finished or keep open."""

from __future__ import annotations

from lakestate.coordinator.epoch_plan import decode_commit_parts
from lakestate.protocol.metadata import CommitPart, Manifest, OperatorEntry, SinkPreCommit
from lakestate.sinks.files.pre_commit import PreCommit


def commit_parts(sink: SinkPreCommit, manifest: Manifest) -> list[CommitPart]:
    """The parts of subtasks in what a sink, or an operator, left to commit in an epoch."""
    return decode_commit_parts(sink.data, f"manifest of epoch {manifest.epoch}")


def committed_subtasks(entry: OperatorEntry, manifest: Manifest) -> frozenset[int]:
    """The subtasks of an operator that left something to commit in an epoch."""
    found = [each for each in manifest.sinks if each.sink_id == entry.operator_id]
    return frozenset(part.subtask_index for each in found for part in commit_parts(each, manifest))


def pre_commits_of(sink_id: str, manifest: Manifest) -> list[PreCommit]:
    """The pre-commits of a sink in an epoch."""
    return [
        PreCommit.decode(part.data)
        for each in manifest.sinks
        if each.sink_id == sink_id
        for part in commit_parts(each, manifest)
    ]


def open_tokens(sink_id: str, manifest: Manifest) -> dict[str, str]:
    """The files that an epoch keeps open, with the upload or hidden file that holds their bytes."""
    return {each.path: each.token for part in pre_commits_of(sink_id, manifest) for each in part.open}


def snapshot_paths(sink_id: str, manifest: Manifest) -> tuple[str, ...]:
    """The copies of open files that an epoch refers to."""
    parts = pre_commits_of(sink_id, manifest)
    return tuple(each.snapshot for part in parts for each in part.open if each.snapshot)
