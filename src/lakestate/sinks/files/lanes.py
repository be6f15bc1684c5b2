"""Lanes: part numbers of a shared upload that belong to one attempt alone.

An upload outlives the attempt that began it, and anyone who holds its id can replace any part by its
number. A subtask that was presumed dead could thus change a file that its successor is writing. Each
attempt that adds parts therefore first claims a lane, by creating an object that only one attempt can
create. No other attempt ever uses its part numbers. Numbers may have gaps, so nothing is lost.
"""

from __future__ import annotations

from enum import StrEnum

from lakestate.errors import ConflictError, CorruptionError, OutcomeUnknownError
from lakestate.sinks.files.names import neutral_name
from lakestate.storage.multipart.parts import PART_NUMBER_MAX
from lakestate.storage.store import AlreadyExists, ObjectStore

LANE_PARTS = 20
"""Part numbers in a lane. An attempt that needs more takes another lane."""

LANES = PART_NUMBER_MAX // LANE_PARTS
LANES_FOR_ROWS = LANES * 9 // 10
"""A file that has used this many is finished: the rest is for attempts that fail while finishing it."""

LANES_FOLDER = "_lakestate/lanes"
"""Readers skip names that begin with an underscore."""


class LaneNames(StrEnum):
    """How the folder with the claims of a file's lanes is named."""

    NEUTRAL = "neutral"
    """So that no reader's pattern matches it."""
    FILE = "file"
    """As the file: uploads that an older version began."""


def lane_numbers(lane: int) -> range:
    """The part numbers of a lane.

    >>> lane_numbers(0), lane_numbers(499)
    (range(1, 21), range(9981, 10001))
    """
    return range(lane * LANE_PARTS + 1, (lane + 1) * LANE_PARTS + 1)


def lane_of(number: int) -> int:
    """The lane of a part number."""
    return (number - 1) // LANE_PARTS


def lane_folder(path: str, names: LaneNames) -> str:
    """Where the claims of a file's lanes are."""
    name = neutral_name(path) if names is LaneNames.NEUTRAL else path.rpartition("/")[2]
    return f"{LANES_FOLDER}/{name}/"


def claim_lane(store: ObjectStore, path: str, after: int, names: LaneNames = LaneNames.NEUTRAL) -> int:
    """Claim the first free lane after another one. At most one caller ever gets a lane.

    >>> from lakestate.storage import open_store
    >>> store = open_store("memory://docs-lanes")
    >>> [claim_lane(store, "a.parquet", 0), claim_lane(store, "a.parquet", 0)]
    [1, 2]
    """
    if after < 0:
        raise CorruptionError("not a lane of an upload", object_name=path, found=after)
    folder = lane_folder(path, names)
    for lane in range(after + 1, LANES):
        try:
            # Empty: Polars, which skips no folder, skips objects without content.
            outcome = store.create(f"{folder}{lane:03d}", b"")
        except OutcomeUnknownError:
            # The lane may be ours or not. An unused lane costs nothing; a shared one costs rows.
            continue
        if not isinstance(outcome, AlreadyExists):
            return lane
    raise ConflictError(
        "too many attempts have written to one upload",
        object_name=f"{store.url}/{path}",
        found=f"{LANES} lanes, all taken",
        action="find out why attempts fail; remove the folder of lanes only when no attempt is running",
    )
