"""Which data files of a global keyed table are opened together, as one layer. Pure.

Every subtask writes a file of its own in every epoch, and all subtasks read all of them. Neighbouring
epochs are therefore kept as one layer in the run cache, so that opening the table costs neither the
number of subtasks nor that of epochs. The plan follows from the files alone: every process finds the
layers that another one built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter

from lakestate.protocol.values import FileRef

MERGED_BYTES_MIN = 64 * 1024
"""Up to this size, merging costs less than opening one more layer in each subtask."""

ENTRY_BYTES = 28
"""What an entry takes in a layer besides its key and value, which may compress to nothing in the file."""


@dataclass(frozen=True, slots=True)
class PlannedLayer:
    """Files that are opened as one layer, newest first."""

    files: tuple[FileRef, ...]
    size_bytes: int
    merged: tuple[PlannedLayer, ...] = ()
    """The layers of earlier epochs that it is made of, newest first; empty for files of one epoch."""

    @property
    def parts(self) -> tuple[PlannedLayer, ...]:
        """What it can be built from, if it is cached. Empty for a single file."""
        if self.merged or len(self.files) == 1:
            return self.merged
        return tuple(_layer_of_epoch((file,)) for file in self.files)


def plan_layers(files: Sequence[FileRef]) -> tuple[PlannedLayer, ...]:
    """The layers of files, both newest first.

    An epoch is merged with older ones as long as they are not larger than itself, as in a binary counter:
    a row is merged a logarithmic number of times, and there is a logarithmic number of layers. With the
    next epoch, layers stay as they are or become parts of a new one.
    """
    layers: list[PlannedLayer] = []
    for epoch in reversed(group_by_epoch(files)):
        merged = [_layer_of_epoch(epoch)]
        size_bytes = merged[0].size_bytes
        while layers and layers[-1].size_bytes <= max(size_bytes, MERGED_BYTES_MIN):
            merged.append(layers.pop())
            size_bytes += merged[-1].size_bytes
        layers.append(_merge(merged, size_bytes))
    return tuple(reversed(layers))


def group_by_epoch(files: Sequence[FileRef]) -> list[tuple[FileRef, ...]]:
    """Files, newest first, in groups of one epoch each."""
    return [tuple(group) for _, group in groupby(files, key=attrgetter("epoch"))]


def _layer_of_epoch(files: tuple[FileRef, ...]) -> PlannedLayer:
    return PlannedLayer(files, sum([file.size_bytes + ENTRY_BYTES * file.row_count for file in files]))


def _merge(layers: Sequence[PlannedLayer], size_bytes: int) -> PlannedLayer:
    if len(layers) == 1:
        return layers[0]
    files = tuple(chain.from_iterable(layer.files for layer in layers))
    return PlannedLayer(files, size_bytes, tuple(layers))
