"""`KafkaLog`: an epoch as one Kafka transaction, with its marker in the control topic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakestate.errors import LakestateError, OutcomeUnknownError
from lakestate.protocol.values import Epoch
from lakestate.sinks.kafka.client import REQUEST_TIMEOUT_S, KafkaClients
from lakestate.sinks.kafka.control_topic import PARTITION, ControlTopic, Marker
from lakestate.sinks.kafka.delivery import SinkIdentity, WriterFencedError
from lakestate.sinks.kafka.messages import message_rows
from lakestate.sinks.staged import StagedEpoch

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

DEFAULTS: Mapping[str, Any] = {
    # As the default partitioner of Java clients.
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
    "transaction.timeout.ms": 300_000,
}
"""Used unless an option says otherwise."""
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_FULL_WAIT_S = 0.02


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """A topic and its control topic, as one sink sees them."""

    clients: KafkaClients
    topic: str
    control: ControlTopic
    identity: SinkIdentity

    def open_writer(self) -> TransactionWriter:
        """Fence all earlier writers of the sink."""
        return TransactionWriter(self)

    def newest_epoch(self) -> Epoch | None:
        """The newest epoch whose marker is committed."""
        return self.control.newest_epoch(self.identity)


class TransactionWriter:
    """A producer with the sink's transactional id. See `DeliveryWriter` for what each method promises."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self._failed: KafkaError | None = None
        own = {
            "transactional.id": log.identity.transactional_id,
            "delivery.report.only.error": True,
            "on_delivery": self._note_failure,
        }
        given = log.clients.options
        defaults = {name: value for name, value in DEFAULTS.items() if name not in given}
        self._producer: Producer = log.clients.producer(**defaults, **own)
        with log.clients.translate_errors("open a transactional producer", log.identity.transactional_id):
            self._producer.init_transactions(REQUEST_TIMEOUT_S)

    def write(self, epoch: StagedEpoch) -> None:
        """Write all rows of an epoch, and its marker, in one transaction."""
        from confluent_kafka import KafkaException

        self._failed = None
        log = self._log
        try:
            self._producer.begin_transaction()
            for table in epoch.tables():
                self._send(table)
            # Last: until the transaction ends, others who read the control topic wait at the marker.
            self._send_marker(Marker.of(epoch, log.topic))
            # A commit alone would not serve the reports of messages that failed.
            self._producer.flush()
        except (KafkaException, SystemError) as cause:
            raise self._not_written(_error_in(cause), epoch) from None
        if self._failed is not None:
            raise self._not_written(self._failed, epoch)
        self._commit(epoch)

    def abandon(self) -> None:
        """Abort what is open, if the broker answers. If it does not, the next writer ends it."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.abort_transaction(REQUEST_TIMEOUT_S)

    def _send(self, table: pa.Table) -> None:
        produce, topic = self._producer.produce, self._log.topic
        for value, key, partition, headers in message_rows(table):
            while True:
                try:
                    if headers is None:
                        produce(topic, value, key, partition)
                    else:
                        produce(topic, value, key, partition, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(_FULL_WAIT_S)
        self._producer.poll(0)

    def _send_marker(self, marker: Marker) -> None:
        log = self._log
        self._producer.produce(log.control.name, marker.encode(), log.identity.marker_key, PARTITION)

    def _commit(self, epoch: StagedEpoch) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.commit_transaction()
        except (KafkaException, SystemError) as cause:
            error = _error_in(cause)
            if error.txn_requires_abort():
                raise self._not_written(error, epoch) from None
            raise OutcomeUnknownError(
                f"the answer to the commit of epoch {epoch.epoch} was lost",
                object_name=f"topic {self._log.topic} at {self._log.clients.bootstrap}",
                found=self._log.clients.hide_values(error.str()),
            ) from None

    def _not_written(self, error: KafkaError, epoch: StagedEpoch) -> LakestateError:
        """The error of a transaction that is not committed."""
        first = self._failed or error
        known = self._log.clients.error_of(first, f"produce epoch {epoch.epoch}", f"topic {self._log.topic}")
        if error.name() in _FENCED or first.name() in _FENCED:
            return WriterFencedError(
                "another writer of the sink was opened, or the epoch took longer than transaction.timeout.ms",
                object_name=known.object_name,
                found=known.found,
            )
        return known

    def _note_failure(self, error: KafkaError | None, message: Any) -> None:
        # What is purged or aborted fails as well; the first failure is the cause.
        if error is not None and self._failed is None:
            self._failed = error


def _error_in(cause: BaseException) -> KafkaError:
    """The error that the client raised.

    After a fatal error the client still reports each message that failed, although the error is already
    raised, which Python turns into a `SystemError` with the error as its cause.
    """
    from confluent_kafka import KafkaException

    found = cause if isinstance(cause, KafkaException) else cause.__cause__
    if not isinstance(found, KafkaException):
        raise cause
    error: KafkaError = found.args[0]
    return error
