"""Which epochs the newest one continues, in a job that went back.

Epochs between the one that a job went back to and the one that it was published as are given up: nothing
continues them, and what they had open may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from lakestate.errors import IncompatibleStateError
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.repair.pre_commits import open_tokens, pre_commits_of


def is_continued(epoch: Epoch, newest: Manifest, read: Callable[[Epoch], Manifest | None]) -> bool:
    """Whether the newest epoch continues another one. False if that is no longer known."""
    current: Manifest | None = newest
    while current is not None:
        went_back = current.went_back
        if went_back is None or epoch >= went_back.epoch:
            return True
        if epoch > went_back.to:
            return False
        current = read(went_back.to)
    return False


def require_open_files_kept(source: Manifest, later: Iterable[Manifest], file_sinks: Collection[str]) -> None:
    """Refuse an epoch that was given up while it had files open, unless its own successors finished them.

    Their rows would be lost: what is visible under their names, if anything, is of another history.
    """
    finished = {
        (sink_id, file.path)
        for manifest in later
        if manifest.went_back == source.went_back
        for sink_id in file_sinks
        for part in pre_commits_of(sink_id, manifest)
        for file in part.finished
    }
    for sink_id in file_sinks:
        left = sorted(path for path in open_tokens(sink_id, source) if (sink_id, path) not in finished)
        if left:
            raise IncompatibleStateError(
                f"epoch {source.epoch} was given up when the job went back, and files that it had open are "
                "not kept",
                object_name=f"job {source.job_id}, sink {sink_id}",
                found=", ".join(left[:3]),
                action="go back to an epoch that the newest one continues, or to one without open files",
            )
