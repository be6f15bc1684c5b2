"""The simulator's own job: counts and sums per user, in all three table types.

Every row of output has the count of its user at that row, so that state that was lost, duplicated or
mixed shows in the output too. Rows of output and state also have the ticket of the attempt that wrote
them, so that a mix of two attempts shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa

from lakestate.coordinator.commit import OperatorCommit
from lakestate.operators.operator import Operator
from lakestate.tables.contract import Table
from lakestate.tables.event_time import event_time_us
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.migration.migrations import ColumnChanges
from lakestate.tables.time_key.table import TimeKeyTable
from lakestate.testing.simulation.job import SimulatedJob
from lakestate.testing.simulation.ledger import Ledger
from lakestate.testing.simulation.seen import Row, Seen

USERS = ("ann", "bob", "cy", "dee", "eve")
RETENTION_S = 8
QUIET_AFTER, QUIET_FOR = 8, 8
"""The replicated table takes this many rows, then ignores this many: some tables change rarely."""
DELAY_S = 2
_START = datetime(2026, 1, 1, tzinfo=UTC)
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("clears", pa.bool_()),
        ("amount", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
_SUM = {1: "total", 2: "spend"}


class UserCounts(Operator):
    """The operator that `UserCountsJob` compares with its oracle."""

    output = "id bigint, user string, n bigint, ticket string"

    totals: Any
    recent: Any
    last: Any

    def __init__(self, ticket: str, version: int, tables: frozenset[str]) -> None:
        self._ticket = ticket
        self._version = version
        self._kept = tables

    def tables(self) -> dict[str, Table]:
        """The tables of this run: `totals`, and those that the seed adds."""
        found: dict[str, Table] = {"totals": _totals(self._version)}
        if "recent" in self._kept:
            found["recent"] = _recent()
        if "last" in self._kept:
            found["last"] = _last()
        return found

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.Table]:
        """Count, sum, remember and clear."""
        rows = sorted(batch.to_pylist(), key=lambda row: row["id"])
        users = sorted({row["user"] for row in rows})
        stored = self.totals.get(pa.table({"user": users})).to_pylist()
        sums = {
            user: [found["n"] or 0, found[_SUM[self._version]] or 0]
            for user, found in zip(users, stored, strict=True)
        }
        out = [self._count_row(row, sums[row["user"]]) for row in rows]
        self._keep(sums)
        if "recent" in self._kept:
            self.recent.insert(batch.select(["user", "id", "ts"]))
        if "last" in self._kept:
            self._remember(rows)
        yield pa.Table.from_pylist(out)

    def _count_row(self, row: Row, sums: list[int]) -> dict[str, Any]:
        sums[0] = 0 if row["clears"] else sums[0] + 1
        sums[1] = 0 if row["clears"] else sums[1] + row["amount"]
        return {"id": row["id"], "user": row["user"], "n": sums[0], "ticket": self._ticket}

    def _keep(self, sums: Mapping[str, list[int]]) -> None:
        kept = {user: values for user, values in sums.items() if values[0]}
        gone = [user for user in sums if user not in kept]
        if gone:
            self.totals.delete(pa.table({"user": gone}))
        if kept:
            columns: dict[str, Any] = {
                "user": list(kept),
                "n": [values[0] for values in kept.values()],
                _SUM[self._version]: [values[1] for values in kept.values()],
                "ticket": [self._ticket] * len(kept),
            }
            if self._version > 1:
                columns["tier"] = ["paid"] * len(kept)
            self.totals.put(pa.table(columns))

    def _remember(self, rows: Sequence[Row]) -> None:
        for row in filter(_is_remembered, rows):
            if row["clears"]:
                self.last.remove(row["user"])
            else:
                self.last.insert(row["user"], row["id"])


class PostedCounts(UserCounts):
    """Adds its output to a ledger as well, with `on_commit`."""

    outbox: Any

    def __init__(self, ticket: str, version: int, tables: frozenset[str], ledger: Ledger) -> None:
        super().__init__(ticket, version, tables)
        self._ledger = ledger
        self._posted: list[Row] = []
        self._seen: list[int] | None = None

    def tables(self) -> dict[str, Table]:
        """The tables of this run, and the one for the commit data."""
        return {**super().tables(), "outbox": _outbox()}

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.Table]:
        """Post what is yielded."""
        for rows in super().process_batch(batch, ctx):
            self._posted += rows.to_pylist()
            self._post()
            yield rows

    def on_watermark(self, watermark: datetime, ctx: Any) -> None:
        """Post which rows a hook finds in the table that forgets them."""
        if "recent" in self._kept:
            self._seen = [row["id"] for row in self.recent.to_pylist()]
            self._post()

    def _post(self) -> None:
        posted = {"rows": self._posted, "seen": self._seen}
        self.outbox.set_commit_data(json.dumps(posted).encode())

    def on_commit(self, commit: OperatorCommit) -> None:
        """Add the rows of an epoch to the ledger."""
        self._ledger.add(commit)


class UserCountsJob(SimulatedJob):
    """`UserCounts` over random rows."""

    operator_id = "counts"
    event_time = "ts"
    delay_us = DELAY_S * 1_000_000
    ignored = frozenset(("ticket", "tier"))

    def __init__(self, random: Random, count: int, *, commits: bool = False) -> None:
        super().__init__([_row(random, number) for number in range(count)], ["user"], _SCHEMA)
        self._tables = frozenset(name for name in ("recent", "last") if random.random() < 0.4)
        self._ledger = Ledger() if commits else None

    def operator(self, attempt: str, version: int) -> Operator:
        """The operator, with the name of the attempt as its ticket."""
        if self._ledger is None:
            return UserCounts(attempt, version, self._tables)
        return PostedCounts(attempt, version, self._tables, self._ledger)

    def state(self, seen: Seen) -> dict[str, list[Row]]:
        """All tables, as the second version reads them."""
        rows = seen.rows
        counts = _counts_by_user(rows)
        expected: dict[str, list[Row]] = {
            "totals": [{"user": user, "n": n, "spend": total} for user, (n, total) in counts.items()]
        }
        if "recent" in self._tables:
            expected["recent"] = [
                {"user": row["user"], "id": row["id"], "ts": row["ts"]}
                for row in rows
                if _is_retained(row, seen.watermark_us)
            ]
        if "last" in self._tables:
            newest = {row["user"]: row for row in rows if _is_remembered(row)}
            expected["last"] = [
                {"key": user, "value": row["id"]} for user, row in newest.items() if not row["clears"]
            ]
        if self._ledger is not None:
            expected["outbox"] = []
        return expected

    def committed(self, seen: Seen) -> list[Row] | None:
        """The same as the output."""
        return None if self._ledger is None else self.output(seen)

    def check_commit(
        self, commit: OperatorCommit, earlier: Sequence[Row], own: Sequence[Row], watermark_us: int | None
    ) -> str | None:
        """What hooks find is what the epoch before kept, however far the watermark has come since."""
        seen = [json.loads(data)["seen"] for data in commit.data]
        if None in seen:
            return None
        kept = [row for row in earlier if _is_retained(row, watermark_us)]
        expected = sorted(int(row["id"]) for row in (*kept, *own))
        found = sorted(number for each in seen for number in each)
        return None if found == expected else f"hooks found rows {found} instead of {expected}"

    def target(self) -> list[dict[str, Any]]:
        """The rows of the ledger."""
        return [] if self._ledger is None else self._ledger.rows

    def output(self, seen: Seen) -> list[Row]:
        """One row for each row, with the count of its user."""
        counts: dict[str, int] = {}
        found: list[Row] = []
        for row in seen.rows:
            counts[row["user"]] = 0 if row["clears"] else counts.get(row["user"], 0) + 1
            found.append({"id": row["id"], "user": row["user"], "n": counts[row["user"]]})
        return found

    def check_consistency(self, state: Mapping[str, Sequence[Row]], visible: Sequence[Row]) -> str | None:
        """The ticket of a user's last row in the output is the one in the state."""
        newest: dict[str, Row] = {}
        for row in sorted(visible, key=lambda row: int(row["id"])):
            newest[row["user"]] = row
        for kept in state["totals"]:
            written = newest[kept["user"]]["ticket"]
            if written != kept["ticket"]:
                return f"{kept['user']}: the state is of attempt {kept['ticket']}, the output of {written}"
        return None


# Declarations are immutable, so all attempts share them.
@cache
def _totals(version: int) -> KeyedTable:
    if version == 1:
        return KeyedTable("totals", key="user string", value="n bigint, total bigint, ticket string")
    step = ColumnChanges(1, rename={"total": "spend"}, add={"tier": ("string", "free")})
    return KeyedTable(
        "totals",
        key="user string",
        value="n bigint, spend bigint, ticket string, tier string",
        version=2,
        migrations=[step],
    )


@cache
def _recent() -> TimeKeyTable:
    return TimeKeyTable(
        "recent", key="user string", value="id bigint, ts timestamp", retention=f"{RETENTION_S} seconds"
    )


@cache
def _last() -> GlobalKeyedTable:
    return GlobalKeyedTable("last", key=str, value=int)


@cache
def _outbox() -> GlobalKeyedTable:
    return GlobalKeyedTable("outbox", key=str, value=int, two_phase_commit=True)


def _row(random: Random, number: int) -> Row:
    return {
        "id": number,
        "user": random.choice(USERS),
        "clears": random.random() < 0.25,
        "amount": random.randint(1, 9),
        "ts": _START + timedelta(seconds=number, milliseconds=random.randint(-2500, 0)),
    }


def _is_remembered(row: Row) -> bool:
    return int(row["id"]) % (QUIET_AFTER + QUIET_FOR) < QUIET_AFTER


def _counts_by_user(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        n, total = counts.get(row["user"], (0, 0))
        counts[row["user"]] = (0, 0) if row["clears"] else (n + 1, total + row["amount"])
    return {user: values for user, values in counts.items() if values[0]}


def _is_retained(row: Row, watermark_us: int | None) -> bool:
    return watermark_us is None or _time_us(row) >= watermark_us - RETENTION_S * 1_000_000


def _time_us(row: Row) -> int:
    return event_time_us(row["ts"], "timestamp")
