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
from lakestate.sinks.staged import StagedEpoch

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

DEFAULTS: Mapping[str, Any] = {
    # As the default partitioner of Java clients.
    "partitioner": "murmur2_random",
    # Few messages wait at a time: they are sent and freed while they are in the processor's cache, which
    # takes a quarter less time than a long queue. A long linger would leave a short queue full and idle.
    "linger.ms": 2,
    "queue.buffering.max.messages": 20_000,
    "queue.buffering.max.kbytes": 262_144,
    "transaction.timeout.ms": 300_000,
}
"""Used unless an option says otherwise."""
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


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
        given = log.clients.options
        defaults = {name: value for name, value in DEFAULTS.items() if name not in given}
        own = {"transactional.id": log.identity.transactional_id}
        with log.clients.translate_errors("open a transactional producer", log.identity.transactional_id):
            self._producer = log.clients.transactional_producer(**defaults, **own)
            self._producer.init_transactions(REQUEST_TIMEOUT_S)

    def write(self, epoch: StagedEpoch) -> None:
        """Write all rows of an epoch, and its marker, in one transaction."""
        from confluent_kafka import KafkaException

        log = self._log
        try:
            self._producer.begin_transaction()
            for table in epoch.tables():
                self._producer.produce(log.topic, table)
            # Last: until the transaction ends, others who read the control topic wait at the marker.
            self._send_marker(Marker.of(epoch, log.topic))
            # A commit alone would not serve the reports of messages that failed.
            self._producer.flush()
        except KafkaException as cause:
            raise self._not_written(cause.args[0], epoch) from None
        if self._producer.failure is not None:
            raise self._not_written(self._producer.failure, epoch)
        self._commit(epoch)

    def abandon(self) -> None:
        """Abort what is open, if the broker answers. If it does not, the next writer ends it."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            self._producer.purge()
            self._producer.abort_transaction(REQUEST_TIMEOUT_S)
        self._producer.close()

    def _send_marker(self, marker: Marker) -> None:
        log = self._log
        row = {"key": log.identity.marker_key.encode(), "value": marker.encode(), "partition": PARTITION}
        self._producer.produce(log.control.name, pa.Table.from_pylist([row]))

    def _commit(self, epoch: StagedEpoch) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.commit_transaction()
        except KafkaException as cause:
            error: KafkaError = cause.args[0]
            if error.txn_requires_abort():
                raise self._not_written(error, epoch) from None
            raise OutcomeUnknownError(
                f"the answer to the commit of epoch {epoch.epoch} was lost",
                object_name=f"topic {self._log.topic} at {self._log.clients.bootstrap}",
                found=self._log.clients.hide_values(error.str()),
            ) from None

    def _not_written(self, error: KafkaError, epoch: StagedEpoch) -> LakestateError:
        """The error of a transaction that is not committed."""
        first = self._producer.failure or error
        known = self._log.clients.error_of(first, f"produce epoch {epoch.epoch}", f"topic {self._log.topic}")
        if error.name() in _FENCED or first.name() in _FENCED:
            return WriterFencedError(
                "another writer of the sink was opened, or the epoch took longer than transaction.timeout.ms",
                object_name=known.object_name,
                found=known.found,
            )
        return known
