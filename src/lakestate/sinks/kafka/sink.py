"""`KafkaSink`: messages in a Kafka topic, each exactly once for readers of committed messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind, StreamKind, require_kind
from lakestate.sinks.description import describe_sink
from lakestate.sinks.files.owner_marks import claim_output
from lakestate.sinks.kafka.client import OURS, KafkaClients, require_confluent_kafka
from lakestate.sinks.kafka.delivery import Delivery, SinkIdentity
from lakestate.sinks.kafka.messages import FINAL_ROWS, MessageLayout
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.sink import Sink, SinkContext, SinkWriter
from lakestate.sinks.staged import StagedEpoch, StagedSink
from lakestate.sinks.staged.sink import StagedWriter

CONTROL_TOPIC = "lakestate-markers"
MESSAGE_BYTES_MAX = 1_000_000
"""The default of the producer's `message.max.bytes`."""

Option = str | int | float | bool


@dataclass(frozen=True, repr=False)
class KafkaSink(StagedSink):
    """Produces the rows of each epoch to a topic, in one transaction, after the epoch is published.

    `key` and `value` name a string or binary column, or several columns that become a JSON object. Without
    `value` all columns do. `headers` names a column for each header, or one column as Spark's Kafka source
    has it. `partition` names a column with the number of the partition; without it, and where it is null,
    the key decides as in Java clients. `options` go to librdkafka as they are.

    >>> KafkaSink("broker:9092", "totals", key="user", options={"sasl.password": "s3cr3t"})
    KafkaSink('totals', bootstrap='broker:9092', key='user', options=<sasl.password>)
    """

    takes: ClassVar[tuple[RowKind, ...]] = (RowKind.APPEND, RowKind.UPSERT, RowKind.CHANGES)

    bootstrap: str
    topic: str
    _: KW_ONLY
    key: str | Sequence[str] | None = None
    value: str | Sequence[str] | None = None
    headers: Mapping[str, str] | str | None = None
    partition: str | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    control_topic: str = CONTROL_TOPIC
    """Holds the markers. It is created if there is none; several sinks and jobs can share it."""
    commit_attempts_max: int = 10
    """How often the delivery of an epoch is tried before the query ends with an error."""
    stream: StreamKind = field(default=FINAL_ROWS, repr=False)
    """The kind of the rows; the pipeline sets it."""

    def __post_init__(self) -> None:
        taken = sorted(OURS.intersection(self.options))
        if taken:
            raise InvalidInputError(
                "an option of a Kafka sink would change how it delivers exactly once",
                object_name=f"topic {self.topic}",
                found=", ".join(taken),
                action="leave it out",
            )
        if not self.bootstrap or not self.topic or self.topic == self.control_topic:
            raise InvalidInputError(
                "not a Kafka topic",
                found=f"bootstrap={self.bootstrap!r}, topic={self.topic!r}, control_topic="
                f"{self.control_topic!r}",
                expected="a broker, and a topic that is not the control topic",
            )
        if self.commit_attempts_max < 1:
            raise InvalidInputError("a delivery must be tried once", found=self.commit_attempts_max)

    def __repr__(self) -> str:
        return describe_sink(self, "topic")

    def for_stream(self, kind: StreamKind, who: str) -> Sink:
        """The sink for rows of a stream. Rows that replace each other need their key as message key."""
        require_kind(kind, self.takes, who)
        return replace(self, stream=kind)

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows and topics that cannot work. A missing control topic is created."""
        from lakestate.sinks.kafka.topics import Topics

        self._check_topic(schema)
        Topics(self._clients).require_control(self.control_topic)

    def dry_run(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse what `check` refuses, and create nothing."""
        from lakestate.sinks.kafka.topics import Topics

        self._check_topic(schema)
        Topics(self._clients).look_at_control(self.control_topic)

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch."""
        return KafkaSinkWriter(self, context)

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Leave the owner's mark in the control topic, and open the writer: a lack of permission shows."""
        from lakestate.sinks.kafka.control_topic import ControlTopic

        claim_output(ControlTopic(self._clients, self.control_topic), owner, claim)
        if claim is not OutputClaim.LOOK:
            self._delivery(SinkIdentity(owner.job_id, owner.sink_id, owner.state_id)).open()

    def deliver(self, epoch: StagedEpoch) -> None:
        """Produce the rows of a published epoch, unless they are in the topic."""
        self._delivery(SinkIdentity(epoch.job_id, epoch.sink_id, epoch.state_id)).deliver(epoch)

    @property
    def layout(self) -> MessageLayout:
        """How rows become messages."""
        return MessageLayout(self.key, self.value, self.headers, self.partition, self.stream)

    @property
    def message_bytes_max(self) -> int:
        """The largest message that is taken."""
        return int(self.options.get("message.max.bytes", MESSAGE_BYTES_MAX))

    @cached_property
    def partition_count(self) -> int:
        """How many partitions the topic has. Workers are told what the driver found."""
        from lakestate.sinks.kafka.topics import Topics

        return Topics(self._clients).require(self.topic).partitions

    def _check_topic(self, schema: pa.Schema) -> None:
        require_confluent_kafka()
        from lakestate.sinks.kafka.topics import Topics, check_message_size

        self.layout.check(schema, f"topic {self.topic}")
        facts = Topics(self._clients).require(self.topic)
        check_message_size(self.topic, facts, self.message_bytes_max)
        self.__dict__["partition_count"] = facts.partitions

    @cached_property
    def _clients(self) -> KafkaClients:
        require_confluent_kafka()
        return KafkaClients(self.bootstrap, self.options)

    def _delivery(self, identity: SinkIdentity) -> Delivery:
        from lakestate.sinks.kafka.control_topic import ControlTopic
        from lakestate.sinks.kafka.transactions import KafkaLog

        found = self._deliveries.get(identity)
        if found is None:
            control = ControlTopic(self._clients, self.control_topic)
            log = KafkaLog(self._clients, self.topic, control, identity)
            found = self._deliveries[identity] = Delivery(log, self.commit_attempts_max)
        return found

    @cached_property
    def _deliveries(self) -> dict[SinkIdentity, Delivery]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        """Without connections: each process opens its own."""
        return {
            name: value for name, value in self.__dict__.items() if name not in ("_clients", "_deliveries")
        }


class KafkaSinkWriter(StagedWriter):
    """Stages rows as messages. See `SinkWriter` for what each method promises."""

    def __init__(self, sink: KafkaSink, context: SinkContext) -> None:
        super().__init__(context)
        self._layout = sink.layout
        self._bytes_max = sink.message_bytes_max
        self._partitions = sink.partition_count if sink.partition is not None else None

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage the messages of rows."""
        super().write(self._layout.messages(batch, self._bytes_max, self._partitions))
