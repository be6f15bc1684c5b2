"""What a Kafka sink refuses before it reaches a broker, and what it never shows."""

from __future__ import annotations

import logging
import pickle
import re

import pytest
from confluent_kafka import KafkaError

from lakestate.errors import (
    CorruptionError,
    InvalidInputError,
    LakestateError,
    NotFoundError,
    StorageUnavailableError,
)
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.kafka.client import KafkaClients
from lakestate.sinks.kafka.control_topic import Marker, require_lasting
from lakestate.sinks.kafka.sink import KafkaSink
from lakestate.sinks.kafka.topics import TopicFacts, check_message_size


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"options": {"transactional.id": "mine"}}, "found transactional.id; leave it out"),
        ({"options": {"enable.idempotence": False, "acks": 0}}, "found acks, enable.idempotence"),
        ({"topic": ""}, "expected a broker, and a topic"),
        ({"control_topic": "t"}, "a topic that is not the control topic"),
        ({"commit_attempts_max": 0}, "a delivery must be tried once"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, object], told: str) -> None:
    settings = {"bootstrap": "b:1", "topic": "t"} | given
    with pytest.raises(InvalidInputError, match=told):
        KafkaSink(**settings)  # type: ignore[arg-type]


def test_a_sink_travels_without_connections_and_with_the_kind_of_its_rows() -> None:
    sink = KafkaSink("b:1", "t", key="who").for_stream(StreamKind(RowKind.UPSERT, ("who",)), "sink out")
    assert isinstance(sink, KafkaSink)
    sink.__dict__["partition_count"] = 4
    assert (sink._clients.bootstrap, sink._deliveries) == ("b:1", {})
    sent = pickle.loads(pickle.dumps(sink))
    assert (sent, sorted({*vars(sent)} - {*vars(KafkaSink("b:1", "t"))})) == (sink, ["partition_count"])


def test_no_secret_is_shown() -> None:
    options = {"sasl.username": "me", "sasl.password": "hush", "ssl.key.pem": "----"}
    sink = KafkaSink("b:1", "t", options=options)
    assert (
        repr(sink) == "KafkaSink('t', bootstrap='b:1', options=<sasl.password, sasl.username, ssl.key.pem>)"
    )
    error = KafkaError(KafkaError._INVALID_ARG, 'Invalid value "hush" of me, ----')
    told = str(KafkaClients("b:1", options).error_of(error, "connect", "b:1"))
    assert 'Invalid value "…" of me, …' in told


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, InvalidInputError),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, InvalidInputError),
        (KafkaError.MSG_SIZE_TOO_LARGE, InvalidInputError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFoundError),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, StorageUnavailableError),
        (KafkaError._TIMED_OUT, StorageUnavailableError),
    ],
)
def test_errors_of_kafka_are_ours_by_what_a_caller_can_do(code: int, kind: type[LakestateError]) -> None:
    found = KafkaClients("b:1", {}).error_of(KafkaError(code), "produce epoch 3", "topic t")
    assert (type(found), found.object_name) == (kind, "topic t at b:1")


def test_a_timeout_is_explained_by_what_the_connection_reported() -> None:
    clients = KafkaClients("b:1", {})
    clients.reported = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
    found = clients.error_of(KafkaError(KafkaError._TIMED_OUT), "describe a topic", "topic t")
    assert isinstance(found, InvalidInputError)
    assert "wrong password" in str(found)


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "compact", "retention.ms": "604800000", "retention.bytes": "-1"},
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"},
    ],
)
def test_a_control_topic_that_keeps_its_markers_is_taken(settings: dict[str, str]) -> None:
    require_lasting("markers", settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, "found retention.ms=604800000"),
        (
            {"cleanup.policy": "compact,delete", "retention.bytes": "9", "retention.ms": "-1"},
            "retention.bytes=9",
        ),
    ],
)
def test_a_control_topic_that_forgets_markers_is_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        require_lasting("markers", settings)


def test_a_topic_for_smaller_messages_than_the_sink_takes_is_refused() -> None:
    facts = TopicFacts(1, 2000, {})
    check_message_size("t", facts, 1488)
    with pytest.raises(InvalidInputError, match=re.escape('options={"message.max.bytes": 1488}')):
        check_message_size("t", facts, 1489)


def test_a_marker_that_somebody_wrote_by_hand_is_named() -> None:
    assert Marker.decode(Marker(7, 3, "t").encode(), "here") == Marker(7, 3, "t")
    with pytest.raises(CorruptionError, match="a marker cannot be read: here"):
        Marker.decode(b"hello", "here")


def test_what_a_client_says_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("lakestate.kafka")
    for number in range(50):
        away = f"FAIL [rdkafka#producer-{number % 2}] a:9092: Connection refused (after {number}ms)"
        log.error(away)
    log.error("FAIL [rdkafka#producer-1] b:9092: Connection refused")
    assert [record.getMessage().partition("] ")[2][:6] for record in caplog.records] == ["a:9092", "b:9092"]
