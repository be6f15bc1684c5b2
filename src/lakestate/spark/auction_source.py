"""The auction house as a Spark stream: `spark.readStream.format("lakestate-auctions")`.

An offset is plain JSON, `{"row": 50000}`: the number of the next row. Tasks generate the rows of their
range as Arrow batches. Nothing is stored, and reading a range again gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.spark.versions.data_sources import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    require_read_limits,
)
from lakestate.tables.arrow.schema import columns_of
from lakestate.testing.auctions import EVENT_US, AuctionHouse, AuctionKind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ARROW_ROWS = 65_536
"""Rows in one Arrow batch: few enough that a task's memory does not grow with the micro-batch."""


@dataclass(frozen=True)
class AuctionRead:
    """What to read: the options, checked and typed."""

    kind: AuctionKind = AuctionKind.BIDS
    seed: int = 0
    rows_per_batch: int = 10_000
    rows: int | None = None
    partitions: int = 2
    columns: tuple[str, ...] | None = None
    event_us: int = EVENT_US

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> AuctionRead:
        """Check and parse options, which Spark passes as strings.

        >>> AuctionRead.from_options({"seed": "7", "rows": "100"})
        AuctionRead(kind=<AuctionKind.BIDS: 'bids'>, seed=7, rows_per_batch=10000, rows=100, partitions=2,
                    columns=None, event_us=100)
        >>> AuctionRead.from_options({"rowsPerBatch": "0"})
        Traceback (most recent call last):
        lakestate.errors.InvalidInputError: invalid value of an option: rowsPerBatch; found 0; ...
        """
        kind = AuctionKind.of(options.get("kind", cls.kind))
        return cls(
            kind=kind,
            seed=_parse_number(options, "seed", cls.seed, least=0),
            rows_per_batch=_parse_number(options, "rowsPerBatch", cls.rows_per_batch, least=1),
            rows=_parse_number(options, "rows", 0, least=0) if "rows" in options else None,
            partitions=_parse_number(options, "partitions", cls.partitions, least=1),
            columns=_parse_columns(options, kind),
            event_us=_parse_event_us(options),
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns to generate."""
        return self.kind.schema if self.columns is None else self.kind.columns(self.columns)


class AuctionDataSource(DataSource):
    """Rows of one kind as a stream, unbounded or with a given number of rows.

    Options: `kind` (bids, auctions or persons), `seed`, `rowsPerBatch` (rows in a micro-batch),
    `rows` (rows in the whole stream; `availableNow` needs it), `partitions` (tasks in a micro-batch),
    `columns` (the only ones to generate: Spark does not tell which ones a query uses), `every` (the event
    time from event to event, such as `10 ms`).

        spark.dataSource.register(AuctionDataSource)
        bids = spark.readStream.format("lakestate-auctions").option("rowsPerBatch", 50_000).load()

    >>> AuctionDataSource.name()
    'lakestate-auctions'
    >>> AuctionDataSource({"columns": "auction, bidder, price, ts"}).schema()
    'auction bigint, bidder bigint, price bigint, ts timestamp'
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read = AuctionRead.from_options(options)

    @classmethod
    def name(cls) -> str:
        """The name to pass to `format`."""
        return "lakestate-auctions"

    def schema(self) -> str:
        """The columns of the kind, or those that were asked for."""
        return ", ".join(map(str, columns_of(self._read.schema, what="auction")))

    def streamReader(self, schema: StructType) -> AuctionStreamReader:  # noqa: N802
        """A reader for one query."""
        return AuctionStreamReader(self._read)


class AuctionRange(InputPartition):
    """The rows of one task: from `start`, up to but not including `stop`."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__((start, stop))
        self.start = start
        self.stop = stop


class AuctionStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges of rows on the driver and generates their rows in tasks.

    >>> reader = AuctionStreamReader(AuctionRead(rows=25, rows_per_batch=10))
    >>> reader.latestOffset({"row": 20}, reader.getDefaultReadLimit())
    {'row': 25}
    >>> [part.value for part in reader.partitions({"row": 20}, {"row": 25})]
    [(20, 22), (22, 25)]
    """

    def __init__(self, read: AuctionRead) -> None:
        require_read_limits('format("lakestate-auctions")', 'read another stream, such as format("rate")')
        self._read = read

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The first row."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The rows of one micro-batch."""
        return ReadMaxRows(self._read.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Refuse an unbounded stream, which could never be read to its end."""
        if self._read.rows is None:
            raise InvalidInputError(
                "an unbounded stream of auctions cannot be read with availableNow",
                action="set the option rows",
            )

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where the next micro-batch ends. Without a limit, a bounded stream is read to its end."""
        end = self._read.rows
        if isinstance(limit, ReadMaxRows):
            stop = start["row"] + limit.max_rows
        else:
            stop = start["row"] + self._read.rows_per_batch if end is None else end
        # Never backwards: after a restart, `rows` may be smaller than what was read before.
        return {"row": max(start["row"], stop if end is None else min(stop, end))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The range, split into one part per task. Parts without rows are left out."""
        count = end["row"] - start["row"]
        cuts = [
            start["row"] + count * part // self._read.partitions for part in range(self._read.partitions + 1)
        ]
        return [AuctionRange(first, last) for first, last in pairwise(cuts) if first < last]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Generate the rows of one part."""
        assert isinstance(partition, AuctionRange)
        read = self._read
        house = AuctionHouse(read.seed, read.event_us)
        for first in range(partition.start, partition.stop, ARROW_ROWS):
            yield house.rows(read.kind, first, min(first + ARROW_ROWS, partition.stop), read.columns)


def _parse_columns(options: Mapping[str, str], kind: AuctionKind) -> tuple[str, ...] | None:
    if "columns" not in options:
        return None
    return tuple(kind.columns([name.strip() for name in options["columns"].split(",")]).names)


def _parse_event_us(options: Mapping[str, str]) -> int:
    text = options.get("every")
    event_us = EVENT_US if text is None else duration_us(text)
    if event_us < 1:
        raise InvalidInputError(
            "invalid value of an option",
            object_name="every",
            found=text,
            expected="a duration of at least 1 us",
        )
    return event_us


def _parse_number(options: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    text = str(options.get(name, default))
    if not text.isdecimal() or int(text) < least:
        raise InvalidInputError(
            "invalid value of an option",
            object_name=name,
            found=text,
            expected=f"a whole number of at least {least}",
        )
    return int(text)
