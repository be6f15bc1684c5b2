"""Whether the rows of a contender are those that DuckDB answers over all events at once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.nexmark.answers import answer_over, watermark
from tests.support.nexmark.output import Rows, check_same, count_rows, sum_by

from benchmarks.nexmark.events import Events
from lakestate.testing.auctions import AuctionKind

END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class Windows(Enum):
    """What becomes of windows that are open at the end of the events."""

    STAY_OPEN = "stay open"
    CLOSE = "close"
    """At the end of bounded input, Flink closes all windows."""


class Answers:
    """The batch answers about some events."""

    def __init__(self, events: Events) -> None:
        self._tables = {kind: events.table(kind) for kind in AuctionKind}

    def of(self, query: str, windows: Windows) -> pa.Table:
        until = END_OF_TIME if windows is Windows.CLOSE else watermark(query, self._tables)
        return answer_over(query, self._tables, until)

    def difference(self, query: str, found: Rows, windows: Windows = Windows.STAY_OPEN) -> str | None:
        """What is wrong with the rows of a query; None if they are exactly those of the answer."""
        if query == "q9":
            found = count_rows([{k: v for k, v in row if k != "rank"} for row in found.elements()])
        if query == "q12":
            found = sum_by(found, "bidder", "bids")
        try:
            check_same(found, self.of(query, windows))
        except AssertionError as wrong:
            return str(wrong).partition("\n")[0]
        return None


def read_changes(folder: Path, schema: pa.Schema) -> Rows:
    """The rows that stand after all changes in files of Debezium's JSON, in the types of the answer."""
    rows: Rows = Counter()
    for path in sorted(folder.glob("part-*")):
        for line in path.read_text().splitlines():
            change = json.loads(line, parse_float=Decimal)
            is_added = change["op"] == "c"
            row = change["after" if is_added else "before"]
            typed = {name: _value(value, schema.field(name).type) for name, value in row.items()}
            rows[tuple(sorted(typed.items()))] += 1 if is_added else -1
    return +rows


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return float(value) if pa.types.is_floating(kind) else value
