"""The events that all contenders read, as Parquet files.

Spark, and with it Lakestate, reads two files of each kind per micro-batch, one in each task. Flink reads two
files of each kind in all, one in each of its source tasks: it would read many files in any order, and drop
what comes late. The rows are the same, in the order of events in each file. Times are whole milliseconds,
because event time in Flink is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakestate.testing.auctions import AuctionHouse, AuctionKind

TASKS = 2
TIME_OF_FIRST_FILE_S = 1_700_000_000
SIDE_KEYS = 10_000
LONG_AGO = 0
"""The time from which the rows of the static table are valid."""


@dataclass(frozen=True)
class Events:
    """Some events in a folder."""

    folder: Path
    count: int
    per_epoch: int
    event_us: int

    def epochs_of(self, kind: AuctionKind) -> Path:
        """The files for Spark, one for each micro-batch."""
        return self.folder / "epochs" / kind.value

    @property
    def parts(self) -> Path:
        """The files for Flink: a folder for each kind."""
        return self.folder / "parts"

    def table(self, kind: AuctionKind) -> pa.Table:
        """All rows of a kind."""
        return pa.concat_tables(
            pq.read_table(path) for path in sorted(self.epochs_of(kind).glob("*.parquet"))
        )


def write_events(folder: Path, count: int, per_epoch: int, event_us: int, seed: int = 7) -> Events:
    """Generate events, and store them in both ways."""
    events = Events(folder, count, per_epoch, event_us)
    house = AuctionHouse(seed, event_us)
    for kind in AuctionKind:
        parts = [_writer(events.parts / kind.value / f"{part}.parquet", kind) for part in range(TASKS)]
        events.epochs_of(kind).mkdir(parents=True)
        for number, start in enumerate(range(0, count, per_epoch)):
            stop = min(start + per_epoch, count)
            rows = pa.table(house.rows(kind, kind.rows_in(start), kind.rows_in(stop)))
            rows = _in_whole_milliseconds(rows)
            for part in range(TASKS):
                share = rows.filter(pa.array(np.arange(len(rows)) % TASKS == part))
                parts[part].write_table(share)
                path = events.epochs_of(kind) / f"{number:05d}-{part}.parquet"
                pq.write_table(share, path)
                # Spark reads older files first.
                written_s = TIME_OF_FIRST_FILE_S + number * TASKS + part
                os.utime(path, (written_s, written_s))
        for writer in parts:
            writer.close()
    _write_side(events.parts / "side")
    return events


def side_table() -> pa.Table:
    """The static table: the same as that of `examples.nexmark`."""
    return pa.table({"key": range(SIDE_KEYS), "value": [f"value-{key}" for key in range(SIDE_KEYS)]})


def _write_side(folder: Path) -> None:
    folder.mkdir()
    since = pa.array([LONG_AGO] * SIDE_KEYS).cast(pa.timestamp("us", "UTC"))
    pq.write_table(side_table().append_column("valid_from", since), folder / "0.parquet")


def _writer(path: Path, kind: AuctionKind) -> pq.ParquetWriter:
    path.parent.mkdir(parents=True, exist_ok=True)
    return pq.ParquetWriter(path, kind.schema)


def _in_whole_milliseconds(rows: pa.Table) -> pa.Table:
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field, pc.floor_temporal(rows[field.name], unit="millisecond"))
    return rows
