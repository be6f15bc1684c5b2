"""`WrittenAgain`: which rows of output are expected more than once, because the job went back.

Each row of a history has one copy of its own, visible or in an open file. When the job goes back to an
epoch, every copy that became visible since is one too many, except in files that were open in the epoch and
have been finished since: there, the rows of the epoch are its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.pre_commit import PreCommit

Rows = Counter[Any]


def goes_back(manifest: Manifest) -> bool:
    """Whether an epoch stands for an earlier one."""
    return manifest.went_back is not None and manifest.went_back.epoch == manifest.epoch


class WrittenAgain:
    """The surplus of one sink's output."""

    def __init__(self, sink_id: str) -> None:
        self._sink_id = sink_id
        self.rows: Rows = Counter()
        """How often rows are visible too often."""
        self._at: dict[Epoch, tuple[Rows, Rows]] = {}
        """What was visible, and the surplus, once an epoch was committed."""

    def on_publish(self, epoch: Epoch, visible: Rows) -> None:
        """An epoch is about to be published, so the one before it is committed."""
        if epoch > 1:
            self._at[Epoch(epoch - 1)] = (visible, Counter(self.rows))

    def on_going_back(
        self,
        found: Manifest,
        earlier: Manifest,
        own: Rows,
        visible: Rows,
        rows_of_file: Callable[[str], Rows],
    ) -> None:
        """The state of an earlier epoch, whose output is `own`, is published again."""
        visible_then, surplus_then = self._at[earlier.epoch]
        hidden_then = own + surplus_then - visible_then
        finished = self._open_files(earlier) - self._open_files(found)
        of_files = sum((rows_of_file(path) for path in sorted(finished)), Counter())
        self.rows = surplus_then + (visible - visible_then) - (of_files & hidden_then)

    def _open_files(self, manifest: Manifest) -> set[str]:
        parts: Iterable[PreCommit] = (
            PreCommit.decode(data)
            for each in manifest.sinks
            if each.sink_id == self._sink_id
            for data in decode_pre_commits(each.data, "manifest")
        )
        return {each.path for part in parts for each in part.open}
