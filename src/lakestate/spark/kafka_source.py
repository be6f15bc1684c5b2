"""The sources of Kafka in a pipeline: how they are named, and whether their topics are there.

Brokers are asked with the client that Spark's connector brings along and the options of the source, so that
they answer as they will answer Spark. Whatever else may be wrong is left to Spark.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError

from lakestate.spark.graph.nodes import SourceNode
from lakestate.spark.kafka_connector import (
    is_broker_silent,
    is_topic_missing,
    missing_topic_error,
    silent_broker_error,
)
from lakestate.spark.spark_reason import spark_reason
from lakestate.spark.versions.kafka_options import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakestate.spark")

ANSWER_S = 15
"""How long a start waits for a broker. Spark alone would wait for minutes."""
TRIES = 3
PAUSE_S = 1.0
"""Between two tries: a broker may not know yet of a topic that was just created. Spark's are the same."""

_CLIENT = "kafka."
_SERVERS = "kafka.bootstrap.servers"
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_CREATES_TOPICS = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""A setting with which Spark asks for topics in a way that makes some brokers create them."""
_TOKENS = "spark.kafka.clusters."
"""Settings with which Spark logs in by tokens, which it alone has."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A source of Kafka. Its options may hold passwords: only addresses and subscription are ever shown."""

    name: str
    servers: str
    subscription: str
    topics: tuple[str, ...]
    """Those that have to be there: none of a pattern, which may match topics to come."""
    client: Mapping[str, str] = field(repr=False)
    """The settings of Kafka's client."""

    @classmethod
    def of_options(cls, name: str, options: Mapping[str, str]) -> KafkaSource:
        """A source with Spark's options, whose names may be written in any case.

        >>> options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "eu,us"}
        >>> print(KafkaSource.of_options("orders", options))
        source orders, Kafka at broker:9092, subscribe eu,us
        """
        given = {option.lower(): value for option, value in options.items()}
        kind = next((each for each in _SUBSCRIPTIONS if each.lower() in given), "")
        return cls(
            name,
            given.get(_SERVERS, "no address"),
            f"{kind} {given.get(kind.lower(), '')}".strip() or "no subscription",
            tuple(_topics(kind, given.get(kind.lower(), ""))),
            {
                option[len(_CLIENT) :]: value
                for option, value in options.items()
                if option.lower().startswith(_CLIENT)
            },
        )

    def __str__(self) -> str:
        return f"source {self.name}, Kafka at {self.servers}, {self.subscription}"


def kafka_sources(sources: Sequence[SourceNode]) -> list[KafkaSource]:
    """Those that Kafka has among the sources of a pipeline, as far as Spark tells."""
    found = [
        KafkaSource.of_options(source.name, options)
        for source in sources
        for options in kafka_options(source.frame)
    ]
    # A frame that is used twice is read once more, from the same topics.
    return [source for number, source in enumerate(found) if source not in found[:number]]


def name_kafka_sources(sources: Sequence[SourceNode]) -> str | None:
    """Those of a pipeline for an error of Spark, which does not say which of them it has read."""
    return "; ".join(map(str, kafka_sources(sources))) or None


def check_topics(session: SparkSession, sources: Sequence[SourceNode]) -> None:
    """Raise NotFoundError if a topic is not there, and StorageUnavailableError if no broker answers.

    Costs one request for each source. Asks nothing where Spark might succeed although we fail.
    """
    asked = [source for source in kafka_sources(sources) if source.topics]
    if not asked or not _hears_what_spark_hears(session):
        return
    for source in asked:
        missing = _missing_topics(session._jvm, source)
        if missing:
            noun = "topic" if len(missing) == 1 else "topics"
            raise missing_topic_error(str(source), f"no {noun} {', '.join(missing)}")


def _hears_what_spark_hears(session: SparkSession) -> bool:
    if session.conf.get(_CREATES_TOPICS, "false") == "true":
        return False
    return not any(name.startswith(_TOKENS) for name, _ in session.sparkContext.getConf().getAll())


def _missing_topics(java: Any, source: KafkaSource) -> list[str]:
    """The topics that the brokers do not know. None if they cannot be asked in a way that is certain."""
    admin = java.org.apache.kafka.clients.admin
    if not isinstance(admin.AdminClient, JavaClass):
        # The connector has its client under another name, as on Databricks.
        return []
    try:
        wait_ms = str(ANSWER_S * 1000)
        limits = {"default.api.timeout.ms": wait_ms, "request.timeout.ms": wait_ms}
        client = admin.AdminClient.create({**source.client, **limits})
        try:
            return _unknown_to(client, list(source.topics))
        finally:
            client.close(java.java.time.Duration.ZERO)
    except Py4JError as failure:
        if is_broker_silent(str(failure)):
            raise silent_broker_error(str(source), spark_reason(failure)) from failure
        _log.info("%s: topics could not be checked before the start", source)
        return []


def _unknown_to(client: Any, topics: list[str]) -> list[str]:
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_S)
        answers = client.describeTopics(topics).topicNameValues()
        topics = [topic for topic in topics if _is_missing(answers[topic])]
        if not topics:
            break
    return topics


def _is_missing(answer: Any) -> bool:
    try:
        answer.get()
    except Py4JError as failure:
        if is_topic_missing(str(failure)):
            return True
        raise
    return False


def _topics(kind: str, value: str) -> list[str]:
    match kind:
        case "subscribe":
            return [topic.strip() for topic in value.split(",") if topic.strip()]
        case "assign":
            try:
                return list(json.loads(value))
            except (ValueError, TypeError):
                # Spark refuses it with a better reason.
                return []
    return []
