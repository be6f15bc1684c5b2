"""Looks at the topics of a sink before the first epoch, and refuses what cannot work."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakestate.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from lakestate.sinks.kafka.client import REQUEST_TIMEOUT_S, KafkaClients
from lakestate.sinks.kafka.control_topic import SETTINGS, require_lasting

if TYPE_CHECKING:
    from confluent_kafka.admin import AclOperation

MESSAGE_OVERHEAD_BYTES = 512
"""What a message takes in a batch of its own besides key, value and headers; generously."""
SEEN_WITHIN_S = 30.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What a sink needs to know of a topic."""

    partitions: int
    message_bytes_max: int
    settings: Mapping[str, str]


class Topics:
    """The topics of a cluster."""

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients

    def require(self, name: str) -> TopicFacts:
        """The facts of a topic that there must be, and that this client may write to."""
        found = self.find(name)
        if found is None:
            raise NotFoundError(
                "there is no such Kafka topic",
                object_name=f"topic {name} at {self._clients.bootstrap}",
                action=f"create it, for example with kafka-topics --create --topic {name}",
            )
        return found

    def require_control(self, name: str) -> None:
        """A control topic that forgets nothing. It is created if there is none."""
        require_lasting(name, (self.find(name) or self._create(name)).settings)

    def look_at_control(self, name: str) -> None:
        """The same, without creating anything."""
        found = self.find(name)
        if found is not None:
            require_lasting(name, found.settings)

    def find(self, name: str) -> TopicFacts | None:
        """The facts of a topic, or None if there is none. Refuses one that this client may not write to."""
        from confluent_kafka import TopicCollection

        try:
            # Not by asking for its metadata, which creates a topic on brokers that allow it.
            with self._clients.ask_admin("describe a topic", f"topic {name}") as admin:
                futures = admin.describe_topics(
                    TopicCollection([name]),
                    include_authorized_operations=True,
                    request_timeout=REQUEST_TIMEOUT_S,
                )
                described = futures[name].result()
            self._require_write(name, described.authorized_operations)
            settings = self._settings(name)
        except NotFoundError:
            return None
        return TopicFacts(len(described.partitions), int(settings["max.message.bytes"]), settings)

    def _require_write(self, name: str, allowed: Collection[AclOperation] | None) -> None:
        """Refuse a topic that this client may not write to. A broker without permissions names none."""
        from confluent_kafka.admin import AclOperation

        if allowed is not None and AclOperation.WRITE not in allowed:
            raise InvalidInputError(
                "Kafka does not permit to write to a topic",
                object_name=f"topic {name} at {self._clients.bootstrap}",
                found=", ".join(sorted(each.name for each in allowed)) or "no permission",
                expected="WRITE",
                action="grant WRITE and DESCRIBE on the topic to this user",
            )

    def _settings(self, name: str) -> dict[str, str]:
        from confluent_kafka.admin import ConfigResource, ResourceType

        asked = ConfigResource(ResourceType.TOPIC, name)
        with self._clients.ask_admin("read the settings of a topic", f"topic {name}") as admin:
            futures = admin.describe_configs([asked], request_timeout=REQUEST_TIMEOUT_S)
            found: dict[str, Any] = futures[asked].result()
        return {each: entry.value for each, entry in found.items() if entry.value is not None}

    def _create(self, name: str) -> TopicFacts:
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, num_partitions=1, replication_factor=-1, config=dict(SETTINGS))
        unsure: StorageUnavailableError | None = None
        try:
            with self._clients.ask_admin("create the control topic", f"topic {name}") as admin:
                admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[name].result()
        except StorageUnavailableError as cause:
            # Another sink may have created it at the same moment, or the answer was lost.
            unsure = cause
        # The broker that answers hears of a new topic from the controller, a little later.
        until = time.monotonic() + SEEN_WITHIN_S
        while (found := self.find(name)) is None and time.monotonic() < until:
            time.sleep(POLL_S)
        if found is None:
            raise unsure or StorageUnavailableError(
                "Kafka created the control topic and does not show it",
                object_name=f"topic {name} at {self._clients.bootstrap}",
                found=f"no such topic after {SEEN_WITHIN_S:g} s",
                action="start again; if it stays away, look at the controller of the cluster",
            )
        return found


def check_message_size(name: str, facts: TopicFacts, bytes_max: int) -> None:
    """Refuse a sink whose largest messages would not fit into the topic."""
    fitting = facts.message_bytes_max - MESSAGE_OVERHEAD_BYTES
    if bytes_max > fitting:
        raise InvalidInputError(
            "the topic takes smaller messages than the sink",
            object_name=f"topic {name}",
            found=f"max.message.bytes={facts.message_bytes_max} of the topic",
            expected=f"at least {bytes_max + MESSAGE_OVERHEAD_BYTES}",
            action=f'raise it, or give the sink options={{"message.max.bytes": {fitting}}}: it then refuses '
            "larger rows while their epoch can still fail",
        )
