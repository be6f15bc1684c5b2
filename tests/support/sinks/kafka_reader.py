"""Reads topics as an outside consumer of committed messages does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

DEADLINE_S = 30


@dataclass(frozen=True, order=True)
class Message:
    """A committed message."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def committed_messages(servers: str, topic: str) -> list[Message]:
    """All committed messages of a topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: dict[int, list[Message]] = {number: [] for number in partitions}
        left = set(partitions)
        while left:
            message: Any = consumer.poll(DEADLINE_S)
            assert message is not None, "the broker does not answer"
            if message.error() is not None:
                left.discard(message.partition())
            else:
                headers = tuple(message.headers() or ())
                number = message.partition()
                found[number].append(Message(number, message.key(), message.value(), headers))
        return [message for number in sorted(found) for message in found[number]]
    finally:
        consumer.close()


def committed_values(servers: str, topic: str) -> list[str]:
    """The values alone, sorted."""
    return sorted((each.value or b"").decode() for each in committed_messages(servers, topic))
