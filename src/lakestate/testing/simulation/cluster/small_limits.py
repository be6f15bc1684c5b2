"""Limits that are small enough for short histories to reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from lakestate.coordinator import upkeep
from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.protocol import compaction
from lakestate.sinks.files import lanes, uploads
from lakestate.tables.global_keyed import layer_plan, reader
from lakestate.tables.staged import table as staged

_SMALL: tuple[tuple[Any, str, Any], ...] = (
    (upkeep, "CLEAN_UP_EPOCHS", 1),
    (upkeep, "RETENTION_SHARE", 1),
    (upkeep, "LISTING_EPOCHS", 4),
    (upkeep, "KnownReferences", partial(KnownReferences, 40)),
    (layer_plan, "MERGED_BYTES_MIN", 0),
    # As with many entries: one is searched for, and not all of them decoded.
    (reader, "ENTRIES_PER_LOOKUP", 0.01),
    (lanes, "LANE_PARTS", 2),
    (uploads, "INLINE_BYTES_MAX", 40),
    (staged, "OBJECT_BYTES", 40),
)


@contextmanager
def small_limits() -> Iterator[None]:
    """Apply the small limits for one run, which must be the only one in its process."""
    with replace_values(_SMALL):
        yield


@contextmanager
def separate_runs() -> Iterator[None]:
    """Let every epoch leave a run of its own, as large epochs do, for one run."""
    with replace_values([(compaction, "ABSORBED_BYTES_MAX", 0)]):
        yield


@contextmanager
def replace_values(values: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Give names of modules other values for one run."""
    before = [(module, name, getattr(module, name)) for module, name, _ in values]
    for module, name, value in values:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
