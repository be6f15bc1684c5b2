"""Ways to break epochs without rows, and what the engine is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.simulation import mutations
from tests.simulation.mutations import Mutation, Patch

from lakestate.codec.engine_files import SparkFiles
from lakestate.coordinator.engine.batches import BatchNumbers, EngineFiles
from lakestate.testing.simulation.cluster import actors


def _with_silences(patch: Patch) -> None:
    drawn = mutations.harsh
    patch.setattr(mutations, "harsh", lambda seed: replace(drawn(seed), silences=True))


def forget_epochs_without_a_batch(patch: Patch) -> None:
    """The next batch gets the number of the epoch that had none."""
    _with_silences(patch)
    patch.setattr(BatchNumbers, "skip_epoch", lambda numbers: numbers)


def forget_the_epoch_before_the_first_batch(patch: Patch) -> None:
    _with_silences(patch)
    patch.setattr(BatchNumbers, "after", classmethod(lambda cls, newest: cls()))


def carry_no_offsets(patch: Patch) -> None:
    """A restart after an epoch without rows begins with the first row again."""
    _with_silences(patch)
    patch.setattr(actors, "engine_files_without_batch", lambda parent, epoch: EngineFiles(()))


def keep_the_numbers_of_the_engine(patch: Patch) -> None:
    """Files are stored as the engine numbers them, not as their epoch is numbered."""
    _with_silences(patch)
    patch.setattr(SparkFiles, "renumber", lambda files, epoch: files)


SILENCE: Sequence[Mutation] = (
    Mutation("forget an epoch without a batch", forget_epochs_without_a_batch),
    Mutation("forget the epoch before the first batch", forget_the_epoch_before_the_first_batch),
    Mutation("carry no offsets into an epoch without rows", carry_no_offsets),
    Mutation("store files under the numbers of the engine", keep_the_numbers_of_the_engine),
)
