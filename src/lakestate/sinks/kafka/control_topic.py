"""`ControlTopic`: what recovery reads: the newest marker of each sink, and who owns its output.

Everything is in partition 0, so that partitions that somebody adds change nothing. The topic is compacted,
and holds each key's newest value for ever: reading all of it is short, and needed only when a writer is
opened. A marker that retention had removed would let an epoch be delivered twice, so a topic that removes
anything is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError, InvalidInputError, StorageUnavailableError
from lakestate.protocol.values import Epoch
from lakestate.sinks.kafka.client import REQUEST_TIMEOUT_S, KafkaClients
from lakestate.sinks.kafka.delivery import SinkIdentity
from lakestate.sinks.staged import StagedEpoch

if TYPE_CHECKING:
    from confluent_kafka import Consumer

PARTITION = 0
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": "16777216",
    "segment.ms": "3600000",
}
"""Of a topic that is created. Small segments are compacted soon, which keeps reading short."""
READ_TIMEOUT_S = 120.0
"""How long to wait for an open transaction of another sink. The broker ends it after its own timeout."""
_GROUP = "lakestate-markers"
_OWNER = "owner/"


class Marker(msgspec.Struct, frozen=True):
    """The value of a marker: the epoch that its transaction delivered. For people, also how many rows."""

    epoch: int
    rows: int = 0
    topic: str = ""

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def of(cls, epoch: StagedEpoch, topic: str) -> Marker:
        """The marker of an epoch."""
        return cls(int(epoch.epoch), epoch.row_count, topic)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Marker:
        """The marker of bytes that somebody may have written by hand."""
        try:
            return msgspec.json.decode(data, type=cls)
        except UNDECODABLE as cause:
            raise CorruptionError(
                "a marker cannot be read",
                object_name=where,
                found=f"{data[:100]!r}: {cause}",
                action="find out who writes to the control topic; only Lakestate may",
            ) from cause


class ControlTopic:
    """The control topic of a sink, as one process reads it. Also its `OwnerMarks`."""

    def __init__(self, clients: KafkaClients, name: str) -> None:
        self._clients = clients
        self.name = name

    @property
    def output(self) -> str:
        """The topic, for messages."""
        return f"control topic {self.name} at {self._clients.bootstrap}"

    def newest_epoch(self, identity: SinkIdentity) -> Epoch | None:
        """The newest epoch of a sink that is delivered."""
        found = self._read("read_committed").get(identity.marker_key)
        if found is None:
            return None
        return Epoch(Marker.decode(found, f"{self.output}, key {identity.marker_key}").epoch)

    def _read(self, isolation: str) -> dict[str, bytes]:
        """The newest value of each key: all of them, or those of transactions that ended before the call.

        A reader of committed messages stops at the first open transaction, which may be of another sink.
        So it goes on until it has passed everything that the partition held at the beginning.
        """
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        end = self._end()
        consumer = self._clients.consumer(
            **{
                "group.id": _GROUP,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # The end of the partition is told when the broker answers, and it waits for more until then.
                "fetch.wait.max.ms": 20,
                "isolation.level": isolation,
            }
        )
        try:
            with self._clients.translate_errors("read the control topic", self.name):
                consumer.assign([TopicPartition(self.name, PARTITION, OFFSET_BEGINNING)])
                return self._read_until(consumer, end)
        finally:
            consumer.close()

    def _end(self) -> int:
        """The end of the partition, open transactions included."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(self.name, PARTITION): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        with self._clients.ask_admin("read the control topic", self.name) as admin:
            futures = admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_TIMEOUT_S
            )
            (found,) = (future.result() for future in futures.values())
        return int(found.offset)

    def _read_until(self, consumer: Consumer, end: int) -> dict[str, bytes]:
        from confluent_kafka import KafkaError

        found: dict[str, bytes] = {}
        deadline = time.monotonic() + READ_TIMEOUT_S
        reached = 0
        while reached < end:
            message = consumer.poll(1.0)
            if message is None:
                if time.monotonic() > deadline:
                    raise self._open_transaction_error(reached, end)
                continue
            error = message.error()
            if error is None:
                _keep_newest(found, message)
                reached = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                reached = message.offset() or 0
            elif not error.retriable() and error.name() != "GROUP_AUTHORIZATION_FAILED":
                raise self._clients.error_of(error, "read the control topic", self.name)
        return found

    def _open_transaction_error(self, reached: int, end: int) -> StorageUnavailableError:
        return StorageUnavailableError(
            "a transaction in the control topic does not end",
            object_name=self.output,
            found=f"offset {reached} after {READ_TIMEOUT_S:.0f} s",
            expected=f"offset {end}",
            action="the broker aborts it after its timeout: try again, or give this sink a control topic of "
            "its own",
        )

    def of_fingerprint(self, fingerprint: str) -> list[str]:
        """All marks of a fingerprint."""
        prefix = f"{_OWNER}{fingerprint}/"
        # Marks are in no transaction. To wait for one would mean to wait for what a killed driver left open,
        # which only the writer ends that is opened next.
        found = self._read("read_uncommitted")
        return sorted(key.removeprefix(_OWNER) for key in found if key.startswith(prefix))

    def leave(self, mark: str) -> None:
        """Leave the mark of an owner."""
        self._write({f"{_OWNER}{mark}": b"{}"})

    def remove(self, marks: Iterable[str]) -> None:
        """Remove marks."""
        self._write({f"{_OWNER}{mark}": None for mark in marks})

    def _write(self, values: Mapping[str, bytes | None]) -> None:
        failed: list[Any] = []

        def told(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        producer = self._clients.producer(**{"enable.idempotence": True})
        with self._clients.translate_errors("write to the control topic", self.name):
            for key, value in values.items():
                producer.produce(self.name, value, key, PARTITION, on_delivery=told)
            left = producer.flush(REQUEST_TIMEOUT_S)
        if failed:
            raise self._clients.error_of(failed[0], "write to the control topic", self.name)
        if left:
            raise StorageUnavailableError("Kafka did not answer in time", object_name=self.output)


def _keep_newest(found: dict[str, bytes], message: Any) -> None:
    key = (message.key() or b"").decode(errors="replace")
    value = message.value()
    if value is None:
        found.pop(key, None)
    else:
        found[key] = value


def require_lasting(name: str, settings: Mapping[str, str]) -> None:
    """Refuse a control topic from which markers disappear."""
    policies = {each.strip() for each in settings.get("cleanup.policy", "delete").split(",")}
    limits = {each: settings.get(each, "-1") for each in ("retention.ms", "retention.bytes")}
    short = {each: limit for each, limit in limits.items() if limit != "-1"}
    if "delete" not in policies or not short:
        return
    raise InvalidInputError(
        "the control topic forgets markers, after which an epoch could be delivered twice",
        object_name=f"topic {name}",
        found=", ".join(f"{each}={limit}" for each, limit in sorted(short.items()))
        + f", cleanup.policy={settings.get('cleanup.policy')}",
        expected="cleanup.policy=compact",
        action=f"kafka-configs --alter --topic {name} --add-config cleanup.policy=compact",
    )
