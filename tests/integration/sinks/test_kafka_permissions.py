"""What a user of Kafka is not permitted to do is named before the first epoch, permission by permission."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from tests.support.servers.kafka import KafkaBroker
from tests.support.sinks.kafka_process import SCHEMA
from tests.support.sinks.kafka_reader import committed_values

from lakestate.errors import InvalidInputError
from lakestate.sinks.kafka.sink import KafkaSink
from lakestate.testing.sink_harness import SinkHarness

USER, TOPIC, CONTROL = "guest", "orders", "markers"
DESCRIBE, SETTINGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
WRITE, READ, CREATE = AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE
TOPICS, IDS = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(users={USER: "hush"}) as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.mark.full
def test_each_permission_that_is_missing_is_named_and_those_of_the_docs_are_enough(
    broker: KafkaBroker,
) -> None:
    options = broker.options_of(USER)
    sink = KafkaSink(broker.user_servers, TOPIC, control_topic=CONTROL, options=options)

    def start() -> SinkHarness:
        return SinkHarness(sink, SCHEMA)

    def refused(action: str, name: str) -> None:
        with pytest.raises(InvalidInputError, match=f"does not permit to {action}.*{name}") as found:
            start()
        assert "grant" in str(found.value)
        assert "hush" not in str(found.value)

    refused("describe a topic", TOPIC)
    broker.grant(USER, TOPICS, TOPIC, DESCRIBE)
    refused("write to a topic", TOPIC)
    broker.grant(USER, TOPICS, TOPIC, WRITE)
    refused("read the settings of a topic", TOPIC)
    broker.grant(USER, TOPICS, TOPIC, SETTINGS)
    refused("describe a topic", CONTROL)
    broker.grant(USER, TOPICS, CONTROL, DESCRIBE, WRITE, SETTINGS)
    refused("create the control topic", CONTROL)
    broker.grant(USER, TOPICS, CONTROL, CREATE)
    refused("read the control topic", CONTROL)
    broker.grant(USER, TOPICS, CONTROL, READ)
    refused("open a transactional producer", re.escape("lakestate/job/out"))
    broker.grant(USER, IDS, "lakestate/", DESCRIBE, WRITE)
    start().epoch([{"n": 1}])
    assert committed_values(broker.servers, TOPIC) == ['{"n":1}']


@pytest.mark.full
def test_a_wrong_password_is_named_and_not_shown(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client tries again and again until then.
    monkeypatch.setattr("lakestate.sinks.kafka.topics.REQUEST_TIMEOUT_S", 3.0)
    options = broker.options_of(USER) | {"sasl.password": "mistaken"}
    with pytest.raises(InvalidInputError, match="does not permit to describe a topic") as found:
        KafkaSink(broker.user_servers, TOPIC, control_topic=CONTROL, options=options).check(SCHEMA)
    assert "mistaken" not in str(found.value)
