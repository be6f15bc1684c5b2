"""Limits that are small enough for short histories to reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lakestate.coordinator import upkeep
from lakestate.coordinator.known_references import KnownReferences
from lakestate.sinks.files import lanes, uploads

_SMALL: tuple[tuple[Any, str, Any], ...] = (
    (upkeep, "CLEAN_UP_EPOCHS", 1),
    (upkeep, "RETENTION_SHARE", 1),
    (upkeep, "KnownReferences", partial(KnownReferences, 6)),
    (lanes, "LANE_PARTS", 2),
    (uploads, "INLINE_BYTES_MAX", 40),
)


@contextmanager
def small_limits() -> Iterator[None]:
    """Apply the small limits for one run, which must be the only one in its process."""
    before = [(module, name, getattr(module, name)) for module, name, _ in _SMALL]
    for module, name, value in _SMALL:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
