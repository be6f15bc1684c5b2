"""Spark's Kafka connector, which Spark does not ship: what is wrong with it, and how to get the right one.

Spark loads whatever jar it is given. One of another Scala or another major version cannot work; one of
another minor version may. What Kafka itself no longer has is told here too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from lakestate.errors import InvalidInputError, LakestateError, NotFoundError, StorageUnavailableError

ARTIFACT = "spark-sql-kafka-0-10"
JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
"""Where a session says which jars it was started with."""

_NAMED = re.compile(rf"{ARTIFACT}_(\d+\.\d+)[-:](\d+\.\d+\.\d+)")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_NOT_FOUND = re.compile(r"Failed to find (?:the )?data source: kafka\b", re.IGNORECASE)
_DOES_NOT_LINK = re.compile(
    r"(NoClassDefFoundError|ClassNotFoundException|NoSuchMethodError|NoSuchFieldError|AbstractMethodError"
    r"|IncompatibleClassChangeError|IllegalAccessError|ServiceConfigurationError|VerifyError)"
)
_KAFKA = re.compile(r"kafka", re.IGNORECASE)
_DATA_LOSS = re.compile(r"KAFKA_DATA_LOSS|failOnDataLoss")
_DENIED = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?:(?:Topic|Group|Cluster)Authorization|(?:Sasl|Ssl)Authentication)Exception"
)
_NO_TOPIC = re.compile(r"UnknownTopicOrPartitionException|InvalidTopicException")
_NO_BROKER = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect)Exception|No resolvable bootstrap urls"
    r"|Timed out waiting for a node assignment|Timeout expired while fetching topic metadata"
    r"|Cannot fetch record for offset \d+ in \d+ milliseconds"
)
"""The last one is of Spark's tasks, after Kafka's client has returned nothing for so long."""
_SUBSCRIBED = re.compile(r"KafkaV2\[((?:Subscribe|SubscribePattern|Assign)\[[^\]]*\])")


class Fit(Enum):
    """Whether a connector works in a Spark."""

    FITS = "fits"
    MAY_FAIL = "may fail"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ConnectorVersion:
    """The versions of Scala and Spark for which a connector is built.

    >>> str(ConnectorVersion.of_spark("4.3.0"))
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'
    """

    scala: str
    spark: str

    def __str__(self) -> str:
        return f"org.apache.spark:{ARTIFACT}_{self.scala}:{self.spark}"

    @classmethod
    def of_spark(cls, version: str, scala: str | None = None) -> ConnectorVersion:
        """The one for a version of Spark, which a vendor may have extended, as in `3.5.1-amzn-0`."""
        found = _VERSION.match(version)
        number = found[0] if found else version
        # Spark 3 comes with either Scala; the package on PyPI has 2.12.
        return cls(scala or ("2.12" if number.startswith("3.") else "2.13"), number)

    def fit(self, wanted: ConnectorVersion) -> Fit:
        """Whether this one works where another is wanted.

        >>> ConnectorVersion("2.12", "3.5.1").fit(ConnectorVersion("2.13", "4.3.0"))
        <Fit.NEVER: 'never'>
        """
        own, other = self.spark.split("."), wanted.spark.split(".")
        if self.scala != wanted.scala or own[0] != other[0]:
            return Fit.NEVER
        return Fit.FITS if own[1] == other[1] else Fit.MAY_FAIL


def named_connectors(settings: str) -> list[ConnectorVersion]:
    """The connectors that settings of a session name, as jars or as packages.

    >>> named_connectors("/x/spark-sql-kafka-0-10_2.12-3.5.1.jar,org.apache.kafka:kafka-clients:3.9.2")
    [ConnectorVersion(scala='2.12', spark='3.5.1')]
    """
    return [ConnectorVersion(*found) for found in dict.fromkeys(_NAMED.findall(settings))]


def connector_action(wanted: ConnectorVersion) -> str:
    """How to start Spark with the right connector."""
    return (
        f"start Spark with --packages {wanted} (spark-submit, pyspark), or with "
        f'SparkSession.builder.config("spark.jars.packages", "{wanted}") before the first session'
    )


def kafka_error(
    text: str, reason: str, wanted: ConnectorVersion, source: str | None = None
) -> LakestateError | None:
    """What to raise for a failure of Spark, given as its whole text, if Kafka's source has it; else None.

    `source` names the sources of Kafka that the failed query has.
    """
    if _NOT_FOUND.search(text):
        return InvalidInputError(
            "Spark has no connector for Kafka",
            object_name='format("kafka")',
            found=reason,
            expected=str(wanted),
            action=connector_action(wanted),
        )
    if _DOES_NOT_LINK.search(text) and _KAFKA.search(text):
        return InvalidInputError(
            "the connector for Kafka does not fit this Spark, or lacks a jar that it needs",
            object_name='format("kafka")',
            found=reason,
            expected=f"{wanted} with its dependencies",
            action=connector_action(wanted),
        )
    source = source or _source_name(text)
    if _DATA_LOSS.search(text):
        return NotFoundError(
            "Kafka no longer has records that the job has not read",
            object_name=source,
            found=reason,
            expected="all records after the offsets of the newest epoch",
            action="if they can be had elsewhere, load them with another job; to continue without them, set "
            'option("failOnDataLoss", "false") on the source for one start, and keep records longer '
            "(retention.ms of the topic)",
        )
    if _DENIED.search(text):
        return InvalidInputError(
            "Kafka does not permit to read a topic",
            object_name=source,
            found=reason,
            expected="a user who may describe and read the topic",
            action="grant the permission, or correct the credentials in options kafka.* of the source",
        )
    if is_topic_missing(text):
        return missing_topic_error(source, reason)
    if is_broker_silent(text):
        return silent_broker_error(source, reason)
    return None


def is_topic_missing(text: str) -> bool:
    """Whether a broker has said, in the text of a failure, that it has no such topic."""
    return _NO_TOPIC.search(text) is not None


def is_broker_silent(text: str) -> bool:
    """Whether the text of a failure says that no broker could be reached."""
    return _NO_BROKER.search(text) is not None


def missing_topic_error(source: str, found: str) -> NotFoundError:
    """The error for a topic that is not there."""
    return NotFoundError(
        "Kafka has no topic of this name",
        object_name=source,
        found=found,
        expected="a topic that exists when the job starts",
        action='create it, or correct option("subscribe", …) of the source',
    )


def silent_broker_error(source: str, found: str) -> StorageUnavailableError:
    """The error for brokers of which none answers."""
    return StorageUnavailableError(
        "no Kafka broker answers",
        object_name=source,
        found=found,
        expected='a broker at an address of option("kafka.bootstrap.servers", …)',
        action="check the address, that the broker runs, and that its advertised listeners can be "
        "reached from here; then start the job again, which continues where it was",
    )


def _source_name(text: str) -> str:
    """The source with what it subscribes to, if Spark's description of a failed query has its offsets.

    A query that has read nothing shows none.
    """
    subscribed = _SUBSCRIBED.search(text)
    return "source of Kafka" if subscribed is None else f"source of Kafka, {subscribed[1]}"
