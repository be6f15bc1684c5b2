"""Which neighbouring runs of a table are worth merging. Pure.

Size-tiered: runs of similar size are merged into one of the next size, so a row is rewritten a
logarithmic number of times and the number of runs stays bounded. Only neighbours in age are
merged, because a newer run must keep hiding an older one's row of the same key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakestate.errors import InvalidInputError

ABSORBED_BYTES_MAX = 64 * 1024
"""A larger run is never rewritten by an epoch: merging it is work beside the stream."""

ABSORBED_RATIO = 1.5
"""As for merges: a row is rewritten a logarithmic number of times, and few small runs remain."""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When runs are merged.

    A group begins at any run and grows towards older ones while the next run is not larger than
    `size_ratio` times the group so far. A group of `files_min` runs that were written in `epochs_min`
    epochs is worth merging. Above `files_max` runs the cheapest neighbours are merged regardless of
    size and age, so that the cost of a lookup stays bounded.
    """

    files_min: int = 8
    files_max: int = 16
    size_ratio: float = 1.5
    size_floor_bytes: int = 64 * 1024
    """Smaller runs count as this size, so that tiny runs are merged with each other."""
    epochs_min: int = 1
    """An epoch may write many files of a table that all subtasks share: with 2 or more, what one epoch
    wrote is not merged before others have followed."""

    def __post_init__(self) -> None:
        is_valid = 2 <= self.files_min <= self.files_max and self.size_ratio > 0 and self.epochs_min >= 1
        if not is_valid:
            raise InvalidInputError(
                "not a compaction policy",
                found=self,
                expected="2 <= files_min <= files_max, size_ratio > 0, epochs_min >= 1",
            )


class StoredFile(Protocol):
    """What a plan looks at, in a reference to a file."""

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch that wrote it."""
        ...


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Merge the runs from `start` up to, not including, `stop`, counted from the newest."""

    start: int
    stop: int
    reaches_oldest: bool
    """True if nothing older remains, so that the merged run needs no tombstones."""


def plan_compaction(files: Sequence[StoredFile], policy: CompactionPolicy) -> CompactionPlan | None:
    """The merge to do, or None. Files are given newest first.

    >>> from types import SimpleNamespace
    >>> sizes = {5: 10, 4: 10, 3: 10, 2: 900}
    >>> files = [SimpleNamespace(epoch=epoch, size_bytes=size) for epoch, size in sizes.items()]
    >>> plan_compaction(files, CompactionPolicy(files_min=3, size_floor_bytes=1))
    CompactionPlan(start=0, stop=3, reaches_oldest=False)
    >>> plan_compaction(files, CompactionPolicy(files_min=3, size_floor_bytes=1, epochs_min=4)) is None
    True
    """
    sizes = [max(file.size_bytes, policy.size_floor_bytes) for file in files]
    for start in range(len(sizes)):
        stop = _tier_end(sizes, start, policy.size_ratio)
        epochs = {file.epoch for file in files[start:stop]}
        if stop - start >= policy.files_min and len(epochs) >= policy.epochs_min:
            return _plan(sizes, start, stop)
    if len(sizes) > policy.files_max:
        return _cheapest(sizes, len(sizes) - policy.files_max + 1)
    return None


def has_many_shared_files(file_count: int, parallelism: int, policy: CompactionPolicy) -> bool:
    """Whether a table that all subtasks share has enough files of all of them together to be merged.

    Every subtask opens all of them, so their total counts. A merge makes each subtask that wrote some of them
    store its metadata again. So a merge waits for as many files as there are subtasks: then it costs at most
    one such write for each file.

    >>> has_many_shared_files(79, 64, CompactionPolicy(files_max=16))
    False
    >>> has_many_shared_files(80, 64, CompactionPolicy(files_max=16))
    True
    """
    return file_count >= policy.files_max + parallelism


def absorbed_runs(row_count: int, runs: Sequence[tuple[int, int]]) -> int:
    """How many of the newest runs an epoch writes again, together with its own rows.

    `runs` gives rows and bytes of each, newest first. A small file costs a request, not bytes. To write
    the rows of small ones again with the new rows costs nothing more, and leaves nothing to merge later.

    >>> absorbed_runs(10, [(12, 1_500), (30, 1_900), (400, 9_000)])
    2
    """
    count = 0
    for rows, size_bytes in runs:
        if rows > ABSORBED_RATIO * row_count or size_bytes > ABSORBED_BYTES_MAX:
            break
        row_count += rows
        count += 1
    return count


def _tier_end(sizes: Sequence[int], start: int, ratio: float) -> int:
    total = sizes[start]
    stop = start + 1
    while stop < len(sizes) and sizes[stop] <= ratio * total:
        total += sizes[stop]
        stop += 1
    return stop


def _cheapest(sizes: Sequence[int], count: int) -> CompactionPlan:
    starts = range(len(sizes) - count + 1)
    start = min(starts, key=lambda index: sum(sizes[index : index + count]))
    return _plan(sizes, start, start + count)


def _plan(sizes: Sequence[int], start: int, stop: int) -> CompactionPlan:
    return CompactionPlan(start, stop, reaches_oldest=stop == len(sizes))
