"""Whether an epoch is delivered, and what to do when nobody knows. Without Kafka: see `DeliveryLog`.

An epoch is one transaction, which also writes a marker with its number. A writer that is opened fences all
earlier writers of the sink and ends what they had open. Only then the newest marker is read, so it is final:
nobody else can add a later one without fencing this writer first. Whenever an answer is lost, or somebody
else fenced the writer, both steps are done again. So at any moment at most one transaction can have an
epoch, whoever else is alive.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from lakestate.errors import (
    ConflictError,
    LakestateError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakestate.protocol.values import Epoch
from lakestate.sinks.staged import StagedEpoch

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 5.0


class WriterFencedError(ConflictError):
    """Another writer of the same sink was opened since. What this one had not committed is gone."""


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """A sink of a job, and the state that the job continues. Whatever driver delivers, it is the same.

    >>> SinkIdentity("shop/eu", "out", "4f1c").transactional_id
    'lakestate/shop%2Feu/out/4f1c'
    """

    job_id: str
    sink_id: str
    state_id: str

    @property
    def transactional_id(self) -> str:
        """The transactional id of every writer of the sink."""
        return f"lakestate/{self._path}"

    @property
    def marker_key(self) -> str:
        """The key of the sink's markers: of a compacted topic the newest one is left."""
        return f"marker/{self._path}"

    @property
    def _path(self) -> str:
        return "/".join(quote(part, safe="") for part in (self.job_id, self.sink_id, self.state_id or "none"))

    def __str__(self) -> str:
        return f"sink {self.sink_id} of job {self.job_id}"


class DeliveryWriter(Protocol):
    """Writes transactions until another writer of the sink is opened."""

    def write(self, epoch: StagedEpoch) -> None:
        """Write all rows of an epoch, and its marker, in one transaction.

        Raises WriterFencedError or StorageUnavailableError if nothing was committed, OutcomeUnknownError
        if that is not known, and other errors for what no repetition can change.
        """
        ...

    def abandon(self) -> None:
        """Release the writer. A transaction that is open ends without effect, now or later."""
        ...


class DeliveryLog(Protocol):
    """A log with transactions, as one sink sees it."""

    def open_writer(self) -> DeliveryWriter:
        """Fence all earlier writers of the sink. Their transactions have ended when this returns."""
        ...

    def newest_epoch(self) -> Epoch | None:
        """The newest epoch whose marker is committed, of all transactions that had ended before the call."""
        ...


def wait_after(attempt: int) -> None:
    """Wait longer after each attempt, and each driver for another time: two of them may fence each other."""
    longest_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**attempt)
    time.sleep(longest_s * (0.5 + random.random() / 2))  # noqa: S311 - not for security


class Delivery:
    """Delivers the epochs of one sink, each exactly once. It keeps its writer open between epochs."""

    def __init__(self, log: DeliveryLog, attempts_max: int, wait: Callable[[int], None] = wait_after) -> None:
        self._log = log
        self._attempts_max = attempts_max
        self._wait = wait
        self._writer: DeliveryWriter | None = None
        self._newest: Epoch | None = None

    def open(self) -> DeliveryWriter:
        """The writer. It is opened if there is none, and the newest epoch is read."""
        if self._writer is not None:
            return self._writer
        # In this order: a marker that an earlier writer adds after the reading would be missed.
        writer = self._log.open_writer()
        try:
            self._newest = self._log.newest_epoch()
        except BaseException:
            writer.abandon()
            raise
        self._writer = writer
        return writer

    def deliver(self, epoch: StagedEpoch) -> None:
        """Deliver an epoch, unless it or a later one is delivered already."""
        for attempt in range(self._attempts_max):
            try:
                self._deliver_once(epoch)
                return
            except (WriterFencedError, OutcomeUnknownError, StorageUnavailableError) as cause:
                failure: LakestateError = cause
            if attempt + 1 < self._attempts_max:
                self._wait(attempt)
        raise _delivery_error(epoch, failure) from failure

    def close(self) -> None:
        """Give the writer up. The next epoch opens another one."""
        writer, self._writer, self._newest = self._writer, None, None
        if writer is not None:
            writer.abandon()

    def _deliver_once(self, epoch: StagedEpoch) -> None:
        try:
            writer = self.open()
            if self._newest is not None and self._newest >= epoch.epoch:
                return
            writer.write(epoch)
            self._newest = epoch.epoch
        except BaseException:
            # Whatever happened, what the log holds is not known any more.
            self.close()
            raise


def _delivery_error(epoch: StagedEpoch, cause: LakestateError) -> LakestateError:
    return type(cause)(
        f"epoch {epoch.epoch} could not be delivered",
        object_name=cause.object_name,
        found=f"{cause.summary}: {cause.found}" if cause.found else cause.summary,
        action="nothing is lost and nothing is delivered twice: remove the cause, and start the job again",
    )
