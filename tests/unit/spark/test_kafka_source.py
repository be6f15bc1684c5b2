"""How sources of Kafka are named, and what brokers say of their topics before a job starts.

A stand-in for the JVM answers as Kafka's client does. The client itself is in the integration tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaPackage
from py4j.protocol import Py4JError

from lakestate.errors import NotFoundError, StorageUnavailableError
from lakestate.spark import kafka_source
from lakestate.spark.kafka_source import KafkaSource, check_topics, name_kafka_sources

UNKNOWN = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host …"
FORBIDDEN = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics"
SILENT = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
UNRESOLVED = "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given"
OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "PAUSE_S", 0)


class Client:
    """A stand-in for Kafka's `AdminClient`. `failures` has what it says of a topic, by request."""

    def __init__(self, failures: Mapping[str, list[str]], refusal: str | None = None) -> None:
        self.failures = {topic: list(texts) for topic, texts in failures.items()}
        self.refusal = refusal
        self.settings: list[dict[str, str]] = []
        self.asked: list[list[str]] = []
        self.closed = 0

    def create(self, settings: dict[str, str]) -> Client:
        if self.refusal is not None:
            raise Py4JError(self.refusal)
        self.settings.append(settings)
        return self

    def describeTopics(self, topics: list[str]) -> Any:
        self.asked.append(list(topics))
        answers = {topic: SimpleNamespace(get=lambda topic=topic: self._answer(topic)) for topic in topics}
        return SimpleNamespace(topicNameValues=lambda: answers)

    def close(self, within: Any) -> None:
        self.closed += 1

    def _answer(self, topic: str) -> None:
        if self.failures.get(topic):
            raise Py4JError(self.failures[topic].pop(0))


class ClientClass(JavaClass):  # type: ignore[misc]
    """A Java class as py4j shows it, without a JVM."""

    def __init__(self, client: Client) -> None:
        self.create = client.create


def session(client: Client | None, settings: Mapping[str, str] | None = None) -> Any:
    """A session whose JVM has this client, or none under the name of Kafka's."""
    given = dict(settings or {})
    admin = SimpleNamespace(
        AdminClient=object.__new__(JavaPackage) if client is None else ClientClass(client)
    )
    kafka = SimpleNamespace(kafka=SimpleNamespace(clients=SimpleNamespace(admin=admin)))
    java = SimpleNamespace(time=SimpleNamespace(Duration=SimpleNamespace(ZERO=0)))
    return SimpleNamespace(
        _jvm=SimpleNamespace(org=SimpleNamespace(apache=kafka), java=java),
        conf=SimpleNamespace(get=given.get),
        sparkContext=SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: list(given.items()))),
    )


def relation(kind: str, source: str, options: Mapping[str, str]) -> Any:
    shown = SimpleNamespace(asCaseSensitiveMap=lambda: options)
    return SimpleNamespace(nodeName=lambda: kind, sourceName=lambda: source, extraOptions=lambda: shown)


def source(*relations: Any, name: str = "records") -> Any:
    """A source whose plan has these leaves."""
    leaves = SimpleNamespace(size=lambda: len(relations), apply=relations.__getitem__)
    plan = SimpleNamespace(collectLeaves=lambda: leaves)
    execution = SimpleNamespace(analyzed=lambda: plan)
    return SimpleNamespace(
        name=name, frame=SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution))
    )


def of_kafka(name: str = "records", **changes: str) -> Any:
    return source(relation("StreamingRelationV2", "kafka", OPTIONS | changes), name=name)


@pytest.mark.parametrize(
    ("option", "value", "topics"),
    [
        ("subscribe", " eu, us,,", ("eu", "us")),
        ("Subscribe", "eu", ("eu",)),
        ("assign", '{"eu": [0, 1], "us": [0]}', ("eu", "us")),
        ("assign", "not JSON", ()),
        ("subscribePattern", "e.*", ()),
        ("topic", "eu", ()),
    ],
)
def test_only_topics_that_are_named_have_to_be_there(
    option: str, value: str, topics: tuple[str, ...]
) -> None:
    assert KafkaSource.of_options("records", {option: value}).topics == topics


def test_a_source_is_shown_without_the_settings_of_its_client() -> None:
    options = OPTIONS | {"kafka.sasl.jaas.config": 'password="secret"', "Kafka.ssl.key.password": "secret"}
    found = KafkaSource.of_options("records", options)
    assert str(found) == "source records, Kafka at broker:9092, subscribe orders"
    assert "secret" not in repr(found)
    assert found.client == {
        "bootstrap.servers": "broker:9092",
        "sasl.jaas.config": 'password="secret"',
        "ssl.key.password": "secret",
    }


def test_the_sources_of_a_pipeline_are_named_once_each() -> None:
    files = source(relation("StreamingRelation", "FileSource[/in]", {}))
    rate = source(relation("StreamingRelationV2", "rate", {}))
    twice = [relation("StreamingRelationV2", "kafka", OPTIONS | {"subscribe": "eu"})] * 2
    named = name_kafka_sources([files, of_kafka("a"), rate, source(*twice, name="b")])
    assert named == (
        "source a, Kafka at broker:9092, subscribe orders; source b, Kafka at broker:9092, subscribe eu"
    )
    assert name_kafka_sources([files, rate]) is None


def test_a_plan_that_looks_different_names_nothing() -> None:
    assert name_kafka_sources([SimpleNamespace(name="records", frame=SimpleNamespace())]) is None  # type: ignore[list-item]


def test_a_topic_that_no_broker_knows_is_refused_by_name() -> None:
    client = Client({"oders": [UNKNOWN] * 9, "gone": [UNKNOWN] * 9})
    with pytest.raises(NotFoundError) as refused:
        check_topics(session(client), [of_kafka(), of_kafka(subscribe="orders,oders,gone")])
    assert refused.value.object_name == "source records, Kafka at broker:9092, subscribe orders,oders,gone"
    assert refused.value.found == "no topics oders, gone"
    assert client.asked == [["orders"], ["orders", "oders", "gone"], ["oders", "gone"], ["oders", "gone"]]
    assert client.closed == len(client.settings) == 2


def test_brokers_are_asked_with_the_settings_of_the_source_but_not_for_as_long() -> None:
    client = Client({})
    check_topics(
        session(client),
        [of_kafka(**{"kafka.security.protocol": "SSL", "kafka.default.api.timeout.ms": "600000"})],
    )
    assert client.settings == [
        {
            "bootstrap.servers": "broker:9092",
            "security.protocol": "SSL",
            "default.api.timeout.ms": "15000",
            "request.timeout.ms": "15000",
        }
    ]


def test_a_topic_that_was_just_created_is_waited_for() -> None:
    client = Client({"orders": [UNKNOWN, UNKNOWN]})
    check_topics(session(client), [of_kafka()])
    assert client.asked == [["orders"]] * 3


@pytest.mark.parametrize(
    "client",
    [Client({"orders": [SILENT]}), Client({}, refusal=UNRESOLVED)],
    ids=["no answer", "no such host"],
)
def test_brokers_of_which_none_answers_are_named(client: Client) -> None:
    with pytest.raises(StorageUnavailableError, match="Kafka at broker:9092, subscribe orders"):
        check_topics(session(client), [of_kafka()])
    assert client.closed == len(client.settings)


@pytest.mark.parametrize(
    "client",
    [
        None,
        Client({"orders": [FORBIDDEN]}),
        Client({}, refusal="org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient"),
    ],
    ids=["no client", "no permission", "wrong setting"],
)
def test_whatever_else_is_wrong_is_left_to_spark(client: Client | None) -> None:
    check_topics(session(client), [of_kafka()])


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"},
        {"spark.kafka.clusters.main.auth.bootstrap.servers": "broker:9092"},
    ],
)
def test_nothing_is_asked_where_spark_may_get_another_answer(settings: dict[str, str]) -> None:
    client = Client({"orders": [UNKNOWN] * 9})
    check_topics(session(client, settings), [of_kafka()])
    assert client.asked == []


def test_a_pattern_may_match_no_topic_yet() -> None:
    client = Client({})
    pattern = {"kafka.bootstrap.servers": "broker:9092", "subscribePattern": "orders-.*"}
    check_topics(session(client), [source(relation("StreamingRelationV2", "kafka", pattern))])
    assert client.settings == []
