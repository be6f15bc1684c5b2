"""A log with transactions, as Kafka is: a writer that is opened fences earlier ones and ends their work.

Opening, sending and committing are calls of their own, with the faults of a store. So a process may stall or
crash between them, and a request may arrive when another writer has long taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa

from lakestate.protocol.values import Epoch
from lakestate.sinks.kafka.delivery import WriterFencedError
from lakestate.sinks.staged import StagedEpoch
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.cluster.process import Process

Rows = list[dict[str, Any]]


@dataclass
class OpenTransaction:
    """What a writer has sent and not committed."""

    number: int
    rows: Rows = field(default_factory=list)
    epoch: int | None = None
    sent: set[int] = field(default_factory=set)
    """The numbers of messages, by which the log knows one that arrives twice."""


class TransactionLog:
    """The log itself, which all processes share. Readers see what is committed."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.marker: int | None = None
        self._writer = 0
        self._open: OpenTransaction | None = None

    def open_writer(self) -> int:
        """A new writer. Whatever an earlier one has begun ends without effect."""
        self._writer += 1
        self._open = None
        return self._writer

    def send(self, writer: int, transaction: int, number: int, rows: Rows, epoch: int | None) -> None:
        """Add rows, and perhaps the marker, to the writer's transaction."""
        self._require(writer)
        if self._open is None or self._open.number < transaction:
            self._open = OpenTransaction(transaction)
        if self._open.number == transaction and number not in self._open.sent:
            self._open.sent.add(number)
            self._open.rows += rows
            self._open.epoch = epoch or self._open.epoch

    def commit(self, writer: int, transaction: int) -> OpenTransaction | None:
        """Show what the writer's transaction holds. None if it was committed before."""
        self._require(writer)
        done = self._open
        if done is None or done.number != transaction:
            return None
        self._open = None
        self.rows += done.rows
        self.marker = done.epoch or self.marker
        return done

    def _require(self, writer: int) -> None:
        if writer != self._writer:
            raise WriterFencedError("the writer is fenced", found=f"writer {self._writer}", expected=writer)


class ProcessLog:
    """The log as one process reaches it: a `DeliveryLog`."""

    def __init__(
        self,
        process: Process,
        log: TransactionLog,
        to_rows: Callable[[pa.Table], Rows],
        on_commit: Callable[[StagedEpoch], None],
    ) -> None:
        self.process = process
        self.log = log
        self.to_rows = to_rows
        self.on_commit = on_commit
        self.transactions = count(1)

    def open_writer(self) -> ProcessLogWriter:
        """Fence all earlier writers."""
        return ProcessLogWriter(self, self.call(Operation.PUT, "open", self.log.open_writer))

    def newest_epoch(self) -> Epoch | None:
        """The marker."""
        found = self.call(Operation.GET, "marker", lambda: self.log.marker)
        return None if found is None else Epoch(found)

    def call(self, operation: Operation, path: str, act: Callable[[], Any]) -> Any:
        """One call, with its faults."""
        return self.process.call(self.process.world.target, operation, f"log-{path}", act)


class ProcessLogWriter:
    """A writer of one process: a `DeliveryWriter`."""

    def __init__(self, log: ProcessLog, number: int) -> None:
        self._log = log
        self._number = number

    def write(self, epoch: StagedEpoch) -> None:
        """One call for each object of rows, one for the marker, and one to commit."""
        log = self._log
        transaction, numbers = next(log.transactions), count()
        for table in epoch.tables():
            self._send(transaction, next(numbers), log.to_rows(table), None)
        self._send(transaction, next(numbers), [], int(epoch.epoch))
        log.call(Operation.SWAP, f"commit-{epoch.epoch}", partial(self._commit, transaction, epoch))

    def abandon(self) -> None:
        """Do nothing: the next writer ends what is open."""

    def _send(self, transaction: int, number: int, rows: Rows, epoch: int | None) -> None:
        send = partial(self._log.log.send, self._number, transaction, number, rows, epoch)
        self._log.call(Operation.PUT, f"send-{transaction}-{number}", send)

    def _commit(self, transaction: int, epoch: StagedEpoch) -> None:
        if self._log.log.commit(self._number, transaction) is not None:
            self._log.on_commit(epoch)
